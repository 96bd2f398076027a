/* Advocates and policies of the CPU broker from shared libraries: the C interface, version 1.
 *
 * A library exports hyoshi_advocate_plugin, hyoshi_policy_plugin, or both; each returns a table of functions. The broker
 * loads it with `hyoshi broker advocate add TASK library --path /absolute/path.so` and `hyoshi broker policy set library
 * --path /absolute/path.so`; docs/broker-extending.md has examples.
 *
 * A library runs inside the broker, with all its rights, while all tasks wait: it must not block, and if it crashes, the
 * broker crashes. Calls are sequential, from different threads. Pointers are valid only during the call. */
#ifndef HYOSHI_PLUGIN_H
#define HYOSHI_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this file. A broker with another version rejects the library. */
#define HYOSHI_PLUGIN_VERSION 1

/* `budget` of CPU time in each `period`, all of it within `deadline` of the start of the period; in ns. */
struct hyoshi_reservation {
  uint64_t budget;
  uint64_t period;
  uint64_t deadline;
};

/* The state of a task since its last report. */
struct hyoshi_status {
  uint64_t at;                    /* the instant, in ns on the broker's clock */
  uint64_t consumed;              /* CPU time, in ns */
  struct hyoshi_reservation held; /* the present reservation; a budget of 0 for nothing */
  int64_t mode;                   /* the program's mode; -1 if it reports none */
  uint32_t cycles;                /* task cycles; 0 if there is no new report */
  uint32_t count;                 /* the number of valid numbers below */
  int64_t numbers[8];             /* the program's own */
};

/* A parameter after the kind, `--name value`; the name is empty if it is missing. */
struct hyoshi_parameter {
  const char *name;
  const char *value;
};

/* Transforms a task's requests. */
struct hyoshi_advocate {
  uint32_t version; /* HYOSHI_PLUGIN_VERSION */
  uint32_t size;    /* sizeof(struct hyoshi_advocate) */

  /* Creates an advocate for a task; the other functions get it as `self`. NULL refuses; the reason is then in `why`, which
   * has `room` bytes including the final zero. */
  void *(*create)(const char *task, const struct hyoshi_parameter *parameters, size_t count, char *why, size_t room);

  /* Writes the new request to `wanted`, which contains `asked`; the period must not change. Returns 0; with any other
   * value the request passes unchanged, and `explain` reports it. */
  int (*advise)(void *self, const struct hyoshi_status *how, const struct hyoshi_reservation *asked,
                struct hyoshi_reservation *wanted);

  /* Reports a changed grant; may be NULL. */
  void (*granted)(void *self, const struct hyoshi_reservation *asked, const struct hyoshi_reservation *held);

  /* Writes a short description in UTF-8 for `explain`; may be NULL. */
  void (*describe)(const void *self, char *words, size_t room);

  /* The last call; may be NULL. */
  void (*destroy)(void *self);
};

/* The request of one task, for a policy. */
struct hyoshi_ask {
  const char *name;                /* the task's */
  struct hyoshi_reservation asked; /* the request of its advocates */
  uint64_t least;                  /* the smallest useful share, in millionths of a CPU */
  uint32_t task;                   /* the broker's number of the task while it exists */
  uint32_t importance;             /* a larger number is more important */
  uint32_t weight;                 /* at least 1; a task with a larger weight loses less */
  uint32_t unused;
};

/* Divides the cap among the tasks. */
struct hyoshi_policy {
  uint32_t version; /* HYOSHI_PLUGIN_VERSION */
  uint32_t size;    /* sizeof(struct hyoshi_policy) */

  /* As an advocate's, without a task. */
  void *(*create)(const struct hyoshi_parameter *parameters, size_t count, char *why, size_t room);

  /* Writes a budget in ns for each request, in the same order; they are 0 before the call. The requests are sorted by
   * importance, the largest first. The broker cuts budgets beyond a request, and beyond `cap` (millionths of a CPU) in
   * sum. Returns 0; with any other value the fallback policy decides, and `show` reports it. */
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
