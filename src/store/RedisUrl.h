#pragma once

#include <string>
#include <vector>

#include "workflow/URIParser.h"
#include "workflow/detail/ClientExchange.h"

namespace workflow {

// What a URL says about a Redis: its address, the transport, the login and the database.
// WFTaskFactory::create_redis_task() has the forms of URLs. Plain data.
struct RedisUrl {
  struct Server {
    std::string host;
    unsigned short port = 0;
    friend bool operator==(const Server&, const Server&) = default;
  };

  enum TransportType transport = TT_TCP;
  Server server;          // of a URL that names one
  std::string unix_path;  // not empty: the path of a unix socket
  // Not empty: the Sentinels that know the master called `master_name`.
  std::vector<Server> sentinels;
  std::string master_name;
  bool logs_in = false;
  std::string user;  // empty: the default user
  std::string password;
  unsigned int db = 0;

  // Return 0, or a WFT_ERR_URI_* code, or ENOMEM. `*why`, if it is not null, then says in one line
  // what makes no sense. It shows no host or port: where the host is missing, those are a user and
  // a password.
  static int parse(const std::string& text, RedisUrl* url, std::string* why = nullptr);
  static int parse(const ParsedURI& uri, RedisUrl* url, std::string* why = nullptr);

  // "host:port", "[address]:port", or the path of the unix socket. Empty for Sentinels.
  std::string address() const;
  static std::string address_of(const Server& server);

  // Return the targets of connections. What is said first on each connection is the login, and the
  // number of the database if it is not 0. On a connection to a master that a Sentinel has named
  // the server is asked for its role as well, and must be a master. Nobody logs in to a Sentinel.
  ClientTarget target() const;
  ClientTarget target_of(const Server& server) const;
  ClientTarget sentinel_target(const Server& sentinel) const;
};

}  // namespace workflow
