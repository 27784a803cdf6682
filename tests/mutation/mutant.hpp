// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Included first into every source of a build with mutants (plant.py): which of them is active is
/// a number in the environment, so that one build holds all.
///
///   VOCABPIPE_MUTANT=N         the one that is active; none without
///   VOCABPIPE_MUTANTS_SEEN=F   a file with one byte per mutant: 1 for each whose code has run.
///   Processes
///                              share it, and those that are killed leave what they have written

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace vocabpipe_mutation {

struct Environment {
    long active = -1;
    long size = 0;
    char* seen = nullptr;

    Environment() {
        if (const char* number = std::getenv("VOCABPIPE_MUTANT")) active = std::atol(number);
        const char* file = std::getenv("VOCABPIPE_MUTANTS_SEEN");
        const int descriptor = file ? ::open(file, O_RDWR | O_CLOEXEC) : -1;
        struct stat status;
        if (descriptor >= 0 && ::fstat(descriptor, &status) == 0) {
            void* const bytes = ::mmap(nullptr, static_cast<size_t>(status.st_size),
                                       PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
            if (bytes != MAP_FAILED) {
                seen = static_cast<char*>(bytes);
                size = status.st_size;
            }
        }
        if (descriptor >= 0) ::close(descriptor);
    }
};

/// Read once; a function's variable, because objects of other sources may ask while they are made.
inline const Environment& environment() {
    static const Environment read;
    return read;
}

inline bool is_active(long number) {
    const Environment& of = environment();
    if (number < of.size) of.seen[number] = 1;
    return number == of.active;
}

}  // namespace vocabpipe_mutation

/// In constants the code is as it was.
constexpr bool vocabpipe_mutant(long number) {
    if (__builtin_is_constant_evaluated())
        return false;  // before C++20 too: CMake tries the compiler
    return vocabpipe_mutation::is_active(number);
}
