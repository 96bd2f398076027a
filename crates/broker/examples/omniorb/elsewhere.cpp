// An advocate, a policy and a scheduler proxy for the CPU broker, in a process of their own, written for omniORB.
//
//   omniidl -bcxx crates/broker/idl/broker.idl
//   g++ -std=c++17 -I. crates/broker/examples/omniorb/elsewhere.cpp brokerSK.cc -o elsewhere -lomniORB4 -lomnithread
//   ./elsewhere -ORBendPoint giop:tcp:127.0.0.1:0 >references
//   hyoshi broker advocate add player external --object $(sed -n 's/^advocate //p' references)
//   hyoshi broker policy set external --object $(sed -n 's/^policy //p' references) --fallback weighted
//
// It prints the three references, "ready", and a line for each call.
#include <algorithm>
#include <cstdio>
#include <map>

#include "broker.hh"

namespace {

void print(const char* what, const char* name, unsigned long long budget) {
  std::printf("%s %s %llu\n", what, name, budget);
  std::fflush(stdout);
}

// Requests 50 % more.
class Half : public POA_CpuBroker::Advocate {
public:
  CpuBroker::Reservation advise(const char* task, const CpuBroker::Status& report, const CpuBroker::Reservation& requested) override {
    CpuBroker::Reservation result = requested;
    result.budget = std::min(requested.budget + requested.budget / 2, requested.deadline);
    if (report.cycles > 0) print("asked", task, requested.budget);
    return result;
  }
  void granted(const char* task, const CpuBroker::Grant& result) override { print("granted", task, result.reserved.budget); }
  char* describe() override { return CORBA::string_dup("half as much again"); }
};

// Divides the cap equally.
class EqualParts : public POA_CpuBroker::Policy {
public:
  CpuBroker::Budgets* arbitrate(CpuBroker::Share cap, const CpuBroker::TaskRequests& requests) override {
    CpuBroker::Budgets_var budgets = new CpuBroker::Budgets;
    budgets->length(requests.length());
    for (CORBA::ULong i = 0; i < requests.length(); i++) {
      // Millionths of a CPU are ns in each ms.
      CpuBroker::Nanoseconds part = requests[i].requested.period / 1000000 * (cap / requests.length());
      budgets[i] = std::min(requests[i].requested.budget, part);
    }
    print("divided", "among", requests.length());
    return budgets._retn();
  }
  char* describe() override { return CORBA::string_dup("the same part for everybody"); }
};

// Only keeps a ledger, with at most 40 % of each task's period.
class Ledger : public POA_CpuBroker::SchedulerProxy {
public:
  void reserve(CORBA::ULong number, const char* name, const CpuBroker::Processes&, const CpuBroker::Reservation& requested) override {
    CpuBroker::Reservation max = requested;
    max.budget = requested.period / 5 * 2;
    if (requested.budget > max.budget) throw CpuBroker::NotReserved(max, "40 % are the most");
    reserved_[number] = requested.budget;
    print("reserved", name, requested.budget);
  }
  void release(CORBA::ULong number) override {
    reserved_.erase(number);
    print("released", "task", number);
  }
  char* describe() override { return CORBA::string_dup("keeps a ledger"); }

private:
  std::map<CORBA::ULong, CpuBroker::Nanoseconds> reserved_;
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
