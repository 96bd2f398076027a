// An advocate, a policy and a scheduler proxy for the CPU broker, in a process of their own, written for omniORB.
//
//   omniidl -bcxx crates/broker/idl/broker.idl
//   g++ -std=c++17 -I. crates/broker/examples/omniorb/elsewhere.cpp brokerSK.cc -o elsewhere -lomniORB4 -lomnithread
//   ./elsewhere -ORBendPoint giop:tcp:127.0.0.1:0 >references
//   hyoshi broker advocate add player external --object $(sed -n 's/^advocate //p' references)
//   hyoshi broker policy set external --object $(sed -n 's/^policy //p' references) --fallback weighted
//
// It prints the three references, "ready", and a line for each thing it is told.
#include <algorithm>
#include <cstdio>
#include <map>

#include "broker.hh"

namespace {

void tell(const char* what, const char* name, unsigned long long budget) {
  std::printf("%s %s %llu\n", what, name, budget);
  std::fflush(stdout);
}

// Asks for half as much again.
class Half : public POA_CpuBroker::Advocate {
public:
  CpuBroker::Reservation advise(const char* task, const CpuBroker::Status& how, const CpuBroker::Reservation& asked) override {
    CpuBroker::Reservation wanted = asked;
    wanted.budget = std::min(asked.budget + asked.budget / 2, asked.deadline);
    if (how.cycles > 0) tell("asked", task, asked.budget);
    return wanted;
  }
  void granted(const char* task, const CpuBroker::Outcome& what) override { tell("granted", task, what.held.budget); }
  char* describe() override { return CORBA::string_dup("half as much again"); }
};

// The same part of what there is for everybody.
class EqualParts : public POA_CpuBroker::Policy {
public:
  CpuBroker::Budgets* arbitrate(CpuBroker::Share cap, const CpuBroker::Asks& asks) override {
    CpuBroker::Budgets_var budgets = new CpuBroker::Budgets;
    budgets->length(asks.length());
    for (CORBA::ULong i = 0; i < asks.length(); i++) {
      // In millionths of a CPU, so in ns of each ms.
      CpuBroker::Nanoseconds part = asks[i].asked.period / 1000000 * (cap / asks.length());
      budgets[i] = std::min(asks[i].asked.budget, part);
    }
    tell("divided", "among", asks.length());
    return budgets._retn();
  }
  char* describe() override { return CORBA::string_dup("the same part for everybody"); }
};

// Reserves nothing really, and no more than 40 % of each task's period.
class Ledger : public POA_CpuBroker::SchedulerProxy {
public:
  void reserve(CORBA::ULong number, const char* name, const CpuBroker::Processes&, const CpuBroker::Reservation& what) override {
    CpuBroker::Reservation most = what;
    most.budget = what.period / 5 * 2;
    if (what.budget > most.budget) throw CpuBroker::NotReserved(most, "40 % are the most");
    held_[number] = what.budget;
    tell("reserved", name, what.budget);
  }
  void release(CORBA::ULong number) override {
    held_.erase(number);
    tell("released", "task", number);
  }
  char* describe() override { return CORBA::string_dup("keeps a ledger"); }

private:
  std::map<CORBA::ULong, CpuBroker::Nanoseconds> held_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
    CORBA::Object_var object = orb->resolve_initial_references("RootPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    // One call at a time: the ledger is shared.
    CORBA::PolicyList policies(1);
    policies.length(1);
    policies[0] = poa->create_thread_policy(PortableServer::SINGLE_THREAD_MODEL);
    PortableServer::POAManager_var manager = poa->the_POAManager();
    PortableServer::POA_var single = poa->create_POA("single", manager, policies);
    const std::pair<const char*, PortableServer::Servant> servants[] = {
        {"advocate", new Half}, {"policy", new EqualParts}, {"scheduler", new Ledger}};
    for (auto [name, servant] : servants) {
      PortableServer::ObjectId_var id = single->activate_object(servant);
      object = single->id_to_reference(id);
      CORBA::String_var reference = orb->object_to_string(object);
      std::printf("%s %s\n", name, reference.in());
    }
    manager->activate();
    std::puts("ready");
    std::fflush(stdout);
    orb->run();
    orb->destroy();
    return 0;
  } catch (CORBA::Exception& error) {
    std::fprintf(stderr, "elsewhere: %s\n", error._name());
    return 1;
  }
}
