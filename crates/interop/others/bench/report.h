// Times of calls, and the line that prints them: the case, then nanoseconds at the 50th, 90th and 99th percentile, and
// nanoseconds for each call of the whole run (which is the figure of oneways and of several threads).
#ifndef REPORT_H
#define REPORT_H

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

inline uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000u + t.tv_nsec;
}

inline void report(const std::string& name, std::vector<uint64_t> times, uint64_t whole, size_t calls) {
  std::sort(times.begin(), times.end());
  auto at = [&](double part) { return times.empty() ? 0 : times[size_t(part * (times.size() - 1))]; };
  std::printf("%s %llu %llu %llu %llu\n", name.c_str(), (unsigned long long)at(0.5), (unsigned long long)at(0.9),
              (unsigned long long)at(0.99), (unsigned long long)(whole / std::max<size_t>(calls, 1)));
  std::fflush(stdout);
}

// Runs `call(thread)` count times in each of several threads, after a tenth as many to warm up.
template <class F> void measure(const std::string& name, size_t threads, size_t count, F make) {
  std::vector<std::vector<uint64_t>> times(threads);
  uint64_t whole = 0;
  for (int warm = 1; warm >= 0; warm--) {
    size_t calls = warm ? count / 10 + 1 : count;
    std::vector<std::thread> running;
    uint64_t start = now();
    for (size_t t = 0; t < threads; t++)
      running.emplace_back([&, t] {
        auto call = make(t);
        times[t].clear();
        times[t].reserve(calls);
        for (size_t i = 0; i < calls; i++) {
          uint64_t before = now();
          call();
          times[t].push_back(now() - before);
        }
      });
    for (auto& thread : running) thread.join();
    whole = now() - start;
  }
  std::vector<uint64_t> all;
  for (auto& each : times) all.insert(all.end(), each.begin(), each.end());
  report(name, all, whole, all.size());
}

// The cases, and the number of calls of each unless the script sets another.
struct Case {
  const char* name;
  size_t octets, threads, count;
  bool oneway;
};
const Case CASES[] = {
  {"empty", 0, 1, 20000, false},
  {"1KiB", 1024, 1, 20000, false},
  {"64KiB", 65536, 1, 4000, false},
  {"8threads", 0, 8, 4000, false},
  {"oneway64", 64, 1, 40000, true},
};

inline bool wanted(const Case& each, const char* only) { return !*only || !std::strcmp(only, each.name); }

#endif
