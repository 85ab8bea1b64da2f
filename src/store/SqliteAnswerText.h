#pragma once

#include <string>
#include <string_view>

#include "store/StoreRequest.h"

namespace workflow {

// The answer to a request as bytes, as the table `answers` holds it. Pure functions. The receipt
// and the id of the request are not part of it.
std::string encode_answer(const WFStoreResult& result);
// Returns false if the bytes are not those of an answer.
bool decode_answer(std::string_view bytes, WFStoreResult* result);

// What a request that can have an id was answered, and the opposite.
WFStoreResult result_of(const StoreRequest& request);
void set_result(const WFStoreResult& result, StoreRequest* request);

}  // namespace workflow
