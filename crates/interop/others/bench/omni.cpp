// omniORB's ping-pong: `omni server [-ORB...]` prints "ready IOR:...", `omni client REFERENCE [SCALE [CASE]] [-ORB...]` prints
// a line for each case of report.h, or for the one that is named. SCALE divides the number of calls.
#include <atomic>
#include <cstdlib>
#include <ping.hh>
#include <unistd.h>
#include "report.h"

namespace {

class Servant : public POA_Bench::Ping {
public:
  void empty() {}
  Bench::Octets* echo(const Bench::Octets& data) { return new Bench::Octets(data); }
  void put(const Bench::Octets&) { taken_++; }
  CORBA::ULong taken() { return taken_.exchange(0); }

private:
  std::atomic<CORBA::ULong> taken_{0};
};

int serve(CORBA::ORB_ptr orb, PortableServer::POA_ptr poa) {
  PortableServer::ObjectId_var id = poa->activate_object(new Servant);
  CORBA::Object_var object = poa->id_to_reference(id);
  CORBA::String_var ior = orb->object_to_string(object);
  std::printf("ready %s\n", ior.in());
  std::fflush(stdout);
  char octet;
  while (read(0, &octet, 1) > 0) {}
  _exit(0);
}

int call(CORBA::ORB_ptr orb, const char* reference, size_t scale, const char* only) {
  CORBA::Object_var object = orb->string_to_object(reference);
  Bench::Ping_var ping = Bench::Ping::_narrow(object);
  if (CORBA::is_nil(ping)) return 1;
  for (const Case& each : CASES) {
    if (!wanted(each, only)) continue;
    size_t count = each.count / scale + 1;
    if (each.oneway) {
      Bench::Octets data;
      data.length(each.octets);
      for (int warm = 1; warm >= 0; warm--) {
        ping->taken();
        uint64_t start = now();
        for (size_t i = 0; i < count; i++) ping->put(data);
        size_t taken = 0;
        while (taken < count) taken += ping->taken();
        if (!warm) report(each.name, {}, now() - start, count);
      }
      continue;
    }
    measure(each.name, each.threads, count, [&](size_t) {
      Bench::Octets data;
      data.length(each.octets);
      return [&ping, data, &each] {
        if (each.octets == 0) ping->empty();
        else Bench::Octets_var back = ping->echo(data);
      };
    });
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
    CORBA::Object_var object = orb->resolve_initial_references("RootPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    PortableServer::POAManager_var(poa->the_POAManager())->activate();
    if (argc > 1 && std::string(argv[1]) == "server") return serve(orb, poa);
    if (argc > 2) return call(orb, argv[2], argc > 3 ? std::atoi(argv[3]) : 1, argc > 4 ? argv[4] : "");
    std::fprintf(stderr, "omni server | omni client REFERENCE [SCALE [CASE]]\n");
    return 2;
  } catch (CORBA::Exception& e) {
    std::fprintf(stderr, "omni: %s\n", e._name());
    return 1;
  }
}
