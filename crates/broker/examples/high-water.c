/* An advocate for the CPU broker: requests the largest consumption of any cycle, plus a margin.
 *
 *   cc -O2 -shared -fPIC -I crates/broker/include crates/broker/examples/high-water.c -o high-water.so
 *   hyoshi broker advocate add player library --path $PWD/high-water.so --margin 20
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hyoshi-plugin.h"

struct high_water {
  unsigned long margin; /* percent */
  uint64_t most;        /* the largest consumption of a cycle, in ns */
};

static void *create(const char *task, const struct hyoshi_parameter *parameters, size_t count, char *why, size_t room) {
  struct high_water *self = calloc(1, sizeof *self);
  (void)task;
  if (!self) {
    snprintf(why, room, "there is no memory");
    return NULL;
  }
  self->margin = 10;
  for (size_t i = 0; i < count; i++) {
    char *end;
    errno = 0;
    self->margin = strtoul(parameters[i].value, &end, 10);
    if (strcmp(parameters[i].name, "margin") != 0 || errno || *end || end == parameters[i].value || self->margin > 100) {
      snprintf(why, room, "its one parameter is margin, in percent, from 0 to 100");
      free(self);
      return NULL;
    }
  }
  return self;
}

static int advise(void *self_, const struct hyoshi_status *how, const struct hyoshi_reservation *asked,
                  struct hyoshi_reservation *wanted) {
  struct high_water *self = self_;
  uint64_t budget;
  if (how->cycles > 0 && how->consumed / how->cycles > self->most) self->most = how->consumed / how->cycles;
  if (self->most == 0) return 0; /* unknown yet: the request passes unchanged */
  budget = self->most + self->most / 100 * self->margin;
  wanted->budget = budget < asked->deadline ? budget : asked->deadline;
  return 0;
}

static void describe(const void *self_, char *words, size_t room) {
  const struct high_water *self = self_;
  snprintf(words, room, "%lu %% above the most so far, %.3f ms", self->margin, self->most / 1e6);
}

const struct hyoshi_advocate *hyoshi_advocate_plugin(void) {
  static const struct hyoshi_advocate table = {
      .version = HYOSHI_PLUGIN_VERSION,
      .size = sizeof table,
      .create = create,
      .advise = advise,
      .describe = describe,
      .destroy = free,
  };
  return &table;
}
