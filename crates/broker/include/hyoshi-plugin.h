/* Advocates and policies of the CPU broker from shared libraries: the C interface, version 1.
 *
 * A library exports hyoshi_advocate_plugin, hyoshi_policy_plugin, or both; each returns a table of functions. The broker
 * loads it with `hyoshi broker advocate add TASK library --path /absolute/path.so` and `hyoshi broker policy set library
 * --path /absolute/path.so`; docs/broker-extending.md tells how, with examples.
 *
 * What a library does it does inside the broker, with all its rights and while all tasks wait: it must not block, and if it
 * crashes, the broker does. Calls come one at a time, from different threads. Nothing it is given may be kept beyond the call. */
#ifndef HYOSHI_PLUGIN_H
#define HYOSHI_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this file. A broker that speaks another refuses the library. */
#define HYOSHI_PLUGIN_VERSION 1

/* `budget` of CPU time in each `period`, all of it within `deadline` of the period's start; in ns. */
struct hyoshi_reservation {
  uint64_t budget;
  uint64_t period;
  uint64_t deadline;
};

/* How a task did since its last report. */
struct hyoshi_status {
  uint64_t at;                    /* when, in ns on the broker's clock */
  uint64_t consumed;              /* CPU time, in ns */
  struct hyoshi_reservation held; /* what is reserved for it now; a budget of 0 for nothing */
  int64_t mode;                   /* what the program says it is doing; -1 if it says nothing */
  uint32_t cycles;                /* cycles of its work; 0 when nobody reported and it is asked anew */
  uint32_t count;                 /* how many of the numbers below there are */
  int64_t numbers[8];             /* the program's own */
};

/* What was written after the kind, `--name value`; the name is empty where none was written. */
struct hyoshi_parameter {
  const char *name;
  const char *value;
};

/* Turns a task's requests into requests. */
struct hyoshi_advocate {
  uint32_t version; /* HYOSHI_PLUGIN_VERSION */
  uint32_t size;    /* sizeof(struct hyoshi_advocate) */

  /* Makes one for a task, which is what the others are given as `self`. NULL refuses; why is then written to `why`, which
   * has room for `room` bytes with the zero at the end. */
  void *(*create)(const char *task, const struct hyoshi_parameter *parameters, size_t count, char *why, size_t room);

  /* What is to be asked for instead of `asked`, into `wanted`, which holds `asked`; its period must stay. Returns 0; with
   * anything else the request goes on as it came, which `explain` tells. */
  int (*advise)(void *self, const struct hyoshi_status *how, const struct hyoshi_reservation *asked,
                struct hyoshi_reservation *wanted);

  /* What was granted, told when it changed; NULL if that is of no interest. */
  void (*granted)(void *self, const struct hyoshi_reservation *asked, const struct hyoshi_reservation *held);

  /* What it does now, in a few words of UTF-8, for `explain`; NULL if it has none. */
  void (*describe)(const void *self, char *words, size_t room);

  /* The last call; NULL if nothing is to be done. */
  void (*destroy)(void *self);
};

/* What one task asks of a policy. */
struct hyoshi_ask {
  const char *name;                /* the task's */
  struct hyoshi_reservation asked; /* what its advocates ask for */
  uint64_t least;                  /* the least that is of use to it, in millionths of a CPU */
  uint32_t task;                   /* the broker's number of it, for as long as it is there */
  uint32_t importance;             /* the larger, the more important */
  uint32_t weight;                 /* at least 1; the larger, the less it should give way */
  uint32_t unused;
};

/* Divides what there is among the tasks. */
struct hyoshi_policy {
  uint32_t version; /* HYOSHI_PLUGIN_VERSION */
  uint32_t size;    /* sizeof(struct hyoshi_policy) */

  /* As an advocate's, but of no task. */
  void *(*create)(const struct hyoshi_parameter *parameters, size_t count, char *why, size_t room);

  /* Writes a budget in ns for each of the asks, at their places; they are 0, which is nothing. All together should be at
   * most `cap`, in millionths of a CPU: what is beyond it, or beyond what was asked, is cut. The asks come with the most
   * important first. Returns 0; with anything else the policy declared for that case decides, which `show` tells. */
  int (*arbitrate)(void *self, uint64_t cap, const struct hyoshi_ask *asks, size_t count, uint64_t *budgets);

  /* As an advocate's. */
  void (*describe)(const void *self, char *words, size_t room);
  void (*destroy)(void *self);
};

const struct hyoshi_advocate *hyoshi_advocate_plugin(void);
const struct hyoshi_policy *hyoshi_policy_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
