// TLS for omniORB: PEER_CA names a file with the authority's certificate, PEER_KEY one with a key and its certificate.
// Both sides then show theirs and check the other's; true if so.
#pragma once
#include <cstdlib>
#include <omniORB4/CORBA.h>
#include <openssl/ssl.h>
#include <omniORB4/sslContext.h>

inline bool secure() {
  const char* authority = std::getenv("PEER_CA");
  const char* key = std::getenv("PEER_KEY");
  if (!authority || !key) return false;
  sslContext::certificate_authority_file = authority;
  sslContext::key_file = key;
  sslContext::key_file_password = "";
  sslContext::verify_mode = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  return true;
}
