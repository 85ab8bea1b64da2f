#pragma once

// WORKFLOW_ADDRESS_SANITIZER and WORKFLOW_THREAD_SANITIZER are defined if the code is compiled with
// that sanitizer. g++ and clang++ announce this in different ways.

#if defined(__SANITIZE_ADDRESS__)
#define WORKFLOW_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WORKFLOW_ADDRESS_SANITIZER
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define WORKFLOW_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WORKFLOW_THREAD_SANITIZER
#endif
#endif
