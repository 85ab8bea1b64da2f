#pragma once

// Clang thread-safety attributes (clang.llvm.org/docs/ThreadSafetyAnalysis.html). With other
// compilers they expand to nothing. With clang, access to a guarded member without its lock is an
// error.
#if defined(__clang__)
#define WF_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define WF_THREAD_ATTRIBUTE(x)
#endif

#define WF_CAPABILITY(x) WF_THREAD_ATTRIBUTE(capability(x))
#define WF_SCOPED_CAPABILITY WF_THREAD_ATTRIBUTE(scoped_lockable)
#define WF_GUARDED_BY(x) WF_THREAD_ATTRIBUTE(guarded_by(x))
#define WF_REQUIRES(...) WF_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define WF_ACQUIRE(...) WF_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define WF_RELEASE(...) WF_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define WF_TRY_ACQUIRE(...) WF_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define WF_EXCLUDES(...) WF_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define WF_NO_THREAD_SAFETY_ANALYSIS WF_THREAD_ATTRIBUTE(no_thread_safety_analysis)
