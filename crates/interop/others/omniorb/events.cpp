// A push consumer and a push supplier in omniORB, with omniORB's stubs of the event service.
//
//   events consume REFERENCE COUNT    prints "ready", then each event as a line; disconnects after COUNT of them
//   events hang REFERENCE             prints "ready"; its consumer never returns
//   events supply REFERENCE           checks the channel, and pushes; a line for each check; status 1 if one failed
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include <COS/CosEventChannelAdmin.hh>
#include <omniORB4/CORBA.h>
#include <omniORB4/Naming.hh>

namespace {

namespace Admin = CosEventChannelAdmin;

struct Consumer : public virtual POA_CosEventComm::PushConsumer {
  bool hangs = false;
  omni_mutex mutex;
  omni_condition changed{&mutex};
  int received = 0;

  void push(const CORBA::Any& data) override {
    while (hangs) sleep(1);
    const char* text;
    CORBA::Long number;
    const CORBA::OctetSeq* octets;
    const CosNaming::NameComponent* name;
    if (data >>= text)
      std::printf("string %s\n", text);
    else if (data >>= number)
      std::printf("long %d\n", number);
    else if (data >>= octets)
      std::printf("octets %.*s\n", int(octets->length()), reinterpret_cast<const char*>(octets->get_buffer()));
    else if (data >>= name)
      std::printf("name %s.%s\n", name->id.in(), name->kind.in());
    else
      std::printf("something else\n");
    std::fflush(stdout);
    omni_mutex_lock lock(mutex);
    received++;
    changed.broadcast();
  }

  void disconnect_push_consumer() override {
    std::printf("disconnected\n");
    std::fflush(stdout);
    omni_mutex_lock lock(mutex);
    received = 1 << 30;
    changed.broadcast();
  }
};


int checks = 0, failures = 0;

template <class F> void check(const std::string& name, F run) {
  checks++;
  std::string why = "a wrong answer";
  try {
    if (run()) {
      std::printf("ok %s\n", name.c_str());
      return;
    }
  } catch (CORBA::SystemException& e) {
    char minor[16];
    std::snprintf(minor, sizeof minor, " %#x", unsigned(e.minor()));
    why = e._name() + std::string(minor);
  } catch (CORBA::Exception& e) {
    why = e._name();
  }
  failures++;
  std::printf("FAILED %s: %s\n", name.c_str(), why.c_str());
}

template <class E, class F> bool raises(F run) {
  try {
    run();
  } catch (E&) {
    return true;
  }
  return false;
}

// Until the supplier's queue has room.
void push(CosEventComm::PushConsumer_ptr to, const CORBA::Any& any) {
  for (int tries = 0;; tries++) {
    try {
      return to->push(any);
    } catch (CORBA::TRANSIENT&) {
      if (tries == 1000) throw;
      usleep(5000);
    }
  }
}

int consume(CORBA::ORB_ptr orb, Admin::EventChannel_ptr channel, bool hangs, int count) {
  CORBA::Object_var root = orb->resolve_initial_references("RootPOA");
  PortableServer::POA_var poa = PortableServer::POA::_narrow(root);
  PortableServer::POAManager_var manager = poa->the_POAManager();
  manager->activate();
  auto* servant = new Consumer;
  servant->hangs = hangs;
  CosEventComm::PushConsumer_var consumer = servant->_this();
  Admin::ConsumerAdmin_var admin = channel->for_consumers();
  Admin::ProxyPushSupplier_var proxy = admin->obtain_push_supplier();
  proxy->connect_push_consumer(consumer);
  std::printf("ready\n");
  std::fflush(stdout);
  {
    omni_mutex_lock lock(servant->mutex);
    while (servant->received < count) servant->changed.wait();
    if (servant->received > count) return 0;
  }
  proxy->disconnect_push_supplier();
  return 0;
}

int supply(Admin::EventChannel_ptr channel) {
  Admin::SupplierAdmin_var admin = channel->for_suppliers();
  Admin::ProxyPushConsumer_var proxy = admin->obtain_push_consumer();
  CORBA::Any any;
  check("before it is connected a supplier is disconnected",
        [&] { return raises<CosEventComm::Disconnected>([&] { proxy->push(any); }); });
  proxy->connect_push_supplier(CosEventComm::PushSupplier::_nil());
  check("a proxy is connected once", [&] {
    return raises<Admin::AlreadyConnected>([&] { proxy->connect_push_supplier(CosEventComm::PushSupplier::_nil()); });
  });
  check("a string", [&] {
    any <<= "48.1N";
    push(proxy, any);
    return true;
  });
  check("a number", [&] {
    any <<= CORBA::Long(-7);
    push(proxy, any);
    return true;
  });
  check("octets", [&] {
    CORBA::OctetSeq octets;
    octets.length(3);
    std::memcpy(octets.get_buffer(), "raw", 3);
    any <<= octets;
    push(proxy, any);
    return true;
  });
  check("a structure", [&] {
    CosNaming::NameComponent name;
    name.id = "gps";
    name.kind = "fix";
    any <<= name;
    push(proxy, any);
    return true;
  });
  check("an event that is too long", [&] {
    return raises<CORBA::BAD_PARAM>([&] {
      any <<= std::string(1000, 'x').c_str();
      push(proxy, any);
    });
  });
  check("there is no pull model", [&] {
    return raises<CORBA::NO_IMPLEMENT>([&] { Admin::ProxyPullConsumer_var pull = admin->obtain_pull_consumer(); });
  });
  check("clients cannot end the channel", [&] { return raises<CORBA::NO_PERMISSION>([&] { channel->destroy(); }); });
  check("after the end there is no proxy", [&] {
    proxy->disconnect_push_consumer();
    return raises<CORBA::OBJECT_NOT_EXIST>([&] { proxy->push(any); });
  });
  std::printf("%d checks, %d failed\n", checks, failures);
  return failures > 0;
}

}  // namespace

int main(int argc, char** argv) {
  CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
  if (argc < 3) return 2;
  try {
    CORBA::Object_var object = orb->string_to_object(argv[2]);
    Admin::EventChannel_var channel = Admin::EventChannel::_narrow(object);
    if (CORBA::is_nil(channel)) {
      std::printf("FAILED: no event channel\n");
      return 1;
    }
    const std::string role = argv[1];
    if (role == "supply") return supply(channel);
    return consume(orb, channel, role == "hang", role == "hang" ? 1 : std::atoi(argv[3]));
  } catch (CORBA::Exception& e) {
    std::printf("FAILED: %s\n", e._name());
    return 1;
  }
}
