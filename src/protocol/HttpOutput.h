#pragma once

#include "protocol/HttpBody.h"
#include "protocol/HttpFields.h"

// Whether what a user has set can be sent without being read in two ways. Pure functions.
namespace protocol {

enum class OutputFraming {
  kLength,   // to be told by Content-Length
  kChunked,  // the user says that the body holds chunks
  kUnclear   // the fields promise what is not ours to keep: another coding, or several
};

// From the Transfer-Encoding fields (RFC 9112, 6.1).
OutputFraming output_framing(const HttpFields& fields);

// The versions that the library speaks; without one it is HTTP/1.1.
bool is_spoken_version(const char* version);

// Whether the body is chunks, well formed, up to their end and no further (RFC 9112, 7.1).
bool is_chunk_framed(const HttpBody& body);

}  // namespace protocol
