#pragma once

#include "protocol/HttpBody.h"
#include "protocol/HttpFields.h"

// Whether what a user has set can be sent without being read in two ways. Pure functions.
namespace protocol {

enum class OutputFraming {
  kLength,        // by Content-Length
  kChunked,       // the user has said that the body consists of chunks
  kUnknownCoding  // the fields name another coding, or several: the library cannot frame the body
};

// How the Transfer-Encoding fields say that the body is framed (RFC 9112, 6.1).
OutputFraming output_framing(const HttpFields& fields);

// Whether the library speaks that version. Null means HTTP/1.1.
bool is_spoken_version(const char* version);

// Whether the body consists of well-formed chunks, with the last chunk and nothing after it
// (RFC 9112, 7.1).
bool is_chunk_framed(const HttpBody& body);

}  // namespace protocol
