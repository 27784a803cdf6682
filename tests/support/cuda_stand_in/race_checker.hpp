// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "sanitizers.hpp"

#if CUDA_STAND_IN_TSAN
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace cuda_stand_in {

/// ThreadSanitizer over the streams is the checker of stream order: what the program orders
/// (enqueue, events, synchronisation) must be an edge for it, and nothing else. A lock around the
/// stand-in's own bookkeeping would order streams by accident and hide a missing event, so such
/// code runs inside this guard: neither its locks nor its reads and writes are seen.
class Unseen {
public:
    Unseen() {
#if CUDA_STAND_IN_TSAN
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
#endif
    }
    ~Unseen() {
#if CUDA_STAND_IN_TSAN
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
    }
    Unseen(const Unseen&) = delete;
    Unseen& operator=(const Unseen&) = delete;
};

/// A lock that orders nobody (see Unseen). Members: the guard is built first and leaves last.
class UnseenLock {
public:
    explicit UnseenLock(std::mutex& mutex) : lock_(mutex) {}

private:
    Unseen unseen_;
    std::lock_guard<std::mutex> lock_;
};

}  // namespace cuda_stand_in
