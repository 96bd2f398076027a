// A program of omniORB's that reports to the CPU broker by itself, over the broker's Unix socket. Over TLS (secure.h) it asks the
// broker of a task that is there, and the task itself.
//
//   reporter REFERENCE [-ORB...]
//
// Prints a line a check, and ends with status 1 if one failed.
#include <cstdio>
#include <string>
#include <unistd.h>
#include "broker.hh"
#include "secure.h"

namespace {

int checks = 0, failures = 0;

template <class F> void check(const std::string& name, F run) {
  checks++;
  std::string why = "a wrong answer";
  try {
    if (run()) {
      std::printf("ok %s\n", name.c_str());
      return;
    }
  } catch (CORBA::Exception& e) {
    why = e._name();
  }
  failures++;
  std::printf("FAILED %s: %s\n", name.c_str(), why.c_str());
}

CpuBroker::CycleReport cycle() {
  CpuBroker::CycleReport one;
  one.consumed = 2000000;
  one.cycles = 1;
  one.mode = -1;
  return one;
}

}  // namespace

int main(int argc, char** argv) {
  const bool over_tls = secure();
  CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
  CORBA::Object_var object = orb->string_to_object(argv[1]);
  CpuBroker::Broker_var broker;
  CpuBroker::Task_var task;
  check("the broker is one", [&] {
    broker = CpuBroker::Broker::_narrow(object);
    return !CORBA::is_nil(broker);
  });
  if (failures) return 1;
  if (over_tls) {
    check("nobody tells over TLS whose task is asked for", [&] {
      try {
        CpuBroker::Task_var own = broker->own_task("omni", 50000000, 3);
      } catch (CpuBroker::NotAllowed&) {
        return true;
      }
      return false;
    });
    check("a task is seen and changed by its name", [&] {
      broker->set_importance("steady", 7);
      CpuBroker::TaskStatus_var status = broker->task_status("steady");
      CpuBroker::TaskPage_var all = broker->tasks("");
      return status->importance == 7 && all->tasks.length() == 1 && !all->more;
    });
    check("a task that was found is called over TLS too", [&] {
      task = broker->find("steady");
      CpuBroker::TaskStatus_var status = task->status();
      return std::string(status->name) == "steady" && status->importance == 7;
    });
    check("what the certificate does not allow is refused", [&] {
      try {
        broker->set_policy("weighted", 0);
      } catch (CpuBroker::NotAllowed&) {
        return true;
      }
      return false;
    });
    orb->destroy();
    std::printf("%d checks, %d failed\n", checks, failures);
    return failures ? 1 : 0;
  }
  check("the kernel tells whose task is asked for", [&] {
    task = broker->own_task("omni", 50000000, 3);
    CpuBroker::TaskStatus_var status = task->status();
    return status->processes.length() == 1 && status->processes[0] == CORBA::ULong(getpid()) &&
           std::string(status->name) == "omni" && status->importance == 3;
  });
  if (failures) return 1;
  check("a report is answered with what is granted", [&] {
    CpuBroker::Grant_var grant = task->report(cycle());
    return grant->requested.budget >= 2000000 && grant->requested.period == 50000000;
  });
  check("oneways arrive, each once", [&] {
    CpuBroker::TaskStatus_var before = task->status();
    for (int i = 0; i < 10; i++) task->report_oneway(cycle());
    CpuBroker::TaskStatus_var status;
    for (int i = 0; i < 500; i++) {
      status = task->status();
      if (status->reports == before->reports + 10) break;
      usleep(10000);
    }
    return status->reports == before->reports + 10;
  });
  check("numbers and a mode are taken", [&] {
    CpuBroker::CycleReport one = cycle();
    one.mode = 2;
    one.numbers.length(2);
    one.numbers[0] = -5;
    one.numbers[1] = 7;
    CpuBroker::Grant_var grant = task->report(one);
    return grant->requested.budget > 0;
  });
  check("what is wrong with a report is told", [&] {
    CpuBroker::CycleReport one = cycle();
    one.mode = 5000000000LL;
    try {
      CpuBroker::Grant_var grant = task->report(one);
    } catch (CpuBroker::Refused& refused) {
      return std::string(refused.message) == "invalid mode 5000000000";
    }
    return false;
  });
  check("a task that there is not is told with the one that is meant", [&] {
    try {
      CpuBroker::Task_var other = broker->find("onmi");
    } catch (CpuBroker::NoSuchTask& none) {
      return std::string(none.nearest) == "omni";
    }
    return false;
  });
  check("a task ends", [&] {
    task->leave();
    try {
      CpuBroker::TaskStatus_var status = task->status();
    } catch (CpuBroker::NoSuchTask&) {
      return true;
    }
    return false;
  });
  orb->destroy();
  std::printf("%d checks, %d failed\n", checks, failures);
  return failures ? 1 : 0;
}
