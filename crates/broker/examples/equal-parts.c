/* A policy for the CPU broker: the same part of the cap for each task, whatever its importance.
 *
 *   cc -O2 -shared -fPIC -I crates/broker/include crates/broker/examples/equal-parts.c -o equal-parts.so
 *   hyoshi broker policy set library --path $PWD/equal-parts.so
 */
#include <stdio.h>

#include "hyoshi-plugin.h"

static int nothing_to_remember;

static void *create(const struct hyoshi_parameter *parameters, size_t count, char *why, size_t room) {
  (void)parameters;
  if (count > 0) {
    snprintf(why, room, "it has no parameters");
    return NULL;
  }
  return &nothing_to_remember;
}

static int arbitrate(void *self, uint64_t cap, const struct hyoshi_ask *asks, size_t count, uint64_t *budgets) {
  (void)self;
  for (size_t i = 0; i < count; i++) {
    /* Millionths of a CPU are ns in each ms. */
    uint64_t part = asks[i].asked.period / 1000000 * (cap / count);
    budgets[i] = asks[i].asked.budget < part ? asks[i].asked.budget : part;
  }
  return 0;
}

static void describe(const void *self, char *words, size_t room) {
  (void)self;
  snprintf(words, room, "the same part for everybody");
}

const struct hyoshi_policy *hyoshi_policy_plugin(void) {
  static const struct hyoshi_policy table = {
      .version = HYOSHI_PLUGIN_VERSION,
      .size = sizeof table,
      .create = create,
      .arbitrate = arbitrate,
      .describe = describe,
  };
  return &table;
}
