// omniORB's server for the lanes of `orb_bench`: prints a reference, and serves until its standard input ends. All its
// threads have the priority that it was started with.
#include <cstdio>
#include <tracking.hh>
#include <unistd.h>
#include "report.h"

namespace {

class Silent : public POA_Tracking::Tracker {
public:
  char* name() { return CORBA::string_dup("omniORB"); }
  Tracking::Position locate(CORBA::ULong micros) {
    uint64_t start = now();
    while (now() - start < micros * uint64_t(1000)) {}
    return Tracking::Position();
  }
  void hint(const char*, const Tracking::Octets&) {}
  Tracking::Octets* echo(const Tracking::Octets& raw) { return new Tracking::Octets(raw); }
  void nothing() {}
  CORBA::Long swap(Tracking::Position&, CORBA::String_out was) {
    was = CORBA::string_dup("");
    return 0;
  }
  void subscribe(Tracking::Callback_ptr) {}
};

}  // namespace

int main(int argc, char** argv) {
  CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
  CORBA::Object_var object = orb->resolve_initial_references("RootPOA");
  PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
  PortableServer::POAManager_var(poa->the_POAManager())->activate();
  PortableServer::ObjectId_var id = poa->activate_object(new Silent);
  CORBA::Object_var served = poa->id_to_reference(id);
  std::printf("%s\n", CORBA::String_var(orb->object_to_string(served)).in());
  std::fflush(stdout);
  char octet;
  while (read(0, &octet, 1) > 0) {}
  _exit(0);
}
