// A client of an object with a rate that a feedback loop sets: a rate modulator in omniORB.
//
//   modulator RATES OPERATION LOWEST HIGHEST [poll | push]
//
// Prints "refused REASON" for a rate that is no number, then "granted HERTZ LOWEST HIGHEST". Then sends `nothing` at its
// rate, and prints "rate HERTZ" for each new rate; with `poll` it asks for the rate; with `push` it pushes events. After
// 100 requests it leaves, and prints "served COUNT refused COUNT".
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <COS/CosEventComm.hh>
#include <omniORB4/CORBA.h>
#include "rates.hh"
#include "tracking.hh"

namespace {

omni_mutex mutex;
double present = 0;

void set(double hertz) {
  omni_mutex_lock lock(mutex);
  if (hertz == present) return;
  present = hertz;
  std::printf("rate %.3f\n", hertz);
  std::fflush(stdout);
}

double interval() {
  omni_mutex_lock lock(mutex);
  return 1 / present;
}

struct Interval : public virtual POA_HyoshiRates::Modulator {
  void rate(CORBA::Double hertz) override { set(hertz); }
};

}  // namespace

int main(int argc, char** argv) {
  try {
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
    if (argc < 5) return 2;
    const bool polls = argc > 5 && std::string(argv[5]) == "poll";
    const bool pushes = argc > 5 && std::string(argv[5]) == "push";
    CORBA::Object_var root = orb->resolve_initial_references("RootPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(root);
    PortableServer::POAManager_var manager = poa->the_POAManager();
    manager->activate();
    PortableServer::Servant_var<Interval> servant = new Interval;
    PortableServer::ObjectId_var id = poa->activate_object(servant);
    HyoshiRates::Modulator_var modulator = servant->_this();
    if (polls) modulator = HyoshiRates::Modulator::_nil();

    CORBA::Object_var object = orb->string_to_object(argv[1]);
    HyoshiRates::Rates_var rates = HyoshiRates::Rates::_unchecked_narrow(object);
    HyoshiRates::Task task;
    task.operation = CORBA::string_dup(argv[2]);
    task.lowest = std::atof(argv[3]);
    task.highest = std::nan("");
    task.estimate = 0;
    task.value = 1;
    try {
      HyoshiRates::Grant_var grant = rates->join(task, modulator);
      std::printf("a rate that is no number was accepted\n");
      return 1;
    } catch (HyoshiRates::Refused& refused) {
      std::printf("refused %s\n", refused.why.in());
    }
    task.highest = std::atof(argv[4]);
    HyoshiRates::Grant_var grant = rates->join(task, modulator);
    std::printf("granted %.3f %.3f %.3f\n", grant->hertz, grant->lowest, grant->highest);
    std::fflush(stdout);
    {
      omni_mutex_lock lock(mutex);
      if (present == 0) present = grant->hertz;
    }
    Tracking::Tracker_var target;
    CosEventComm::PushConsumer_var consumer;
    if (pushes)
      consumer = CosEventComm::PushConsumer::_narrow(grant->target);
    else
      target = Tracking::Tracker::_narrow(grant->target);
    if (CORBA::is_nil(target) && CORBA::is_nil(consumer)) return 1;
    CORBA::Any event;
    event <<= "48.1N";
    int served = 0, refused = 0;
    while (served + refused < 100) {
      const auto next = std::chrono::steady_clock::now() + std::chrono::duration<double>(interval());
      try {
        if (pushes)
          consumer->push(event);
        else
          target->nothing();
        served++;
      } catch (CORBA::TRANSIENT&) {
        refused++;
      }
      if (polls) set(rates->rate(grant->ticket));
      std::this_thread::sleep_until(next);
    }
    rates->leave(grant->ticket);
    std::printf("served %d refused %d\n", served, refused);
    std::fflush(stdout);
    orb->destroy();
    return 0;
  } catch (HyoshiRates::Refused& refused) {
    std::printf("refused %s: %s\n", refused.why.in(), refused.remedy.in());
  } catch (CORBA::SystemException& raised) {
    std::printf("raised %s %#x\n", raised._name(), unsigned(raised.minor()));
  } catch (CORBA::Exception& raised) {
    std::printf("raised %s\n", raised._name());
  }
  return 1;
}
