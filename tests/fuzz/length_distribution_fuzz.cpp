// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: a file of document lengths has ascending lengths and a count above 0, or
// throws InputFileError of one line; and as --length-buckets they are ascending lengths up to the
// longest, or throw UsageError.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "src/support/length_buckets.hpp"
#include "src/support/length_distribution.hpp"
#include "vocabpipe/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    const int file = ::memfd_create("lengths", 0);
    if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
    try {
        int64_t before = 0, count = 0;
        for (const LengthCount& one :
             read_length_distribution("/proc/self/fd/" + std::to_string(file))) {
            if (one.length <= before || one.count < 0) std::abort();
            before = one.length;
            count += one.count;
        }
        if (count <= 0) std::abort();
    } catch (const InputFileError& error) {
        if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    }
    ::close(file);
    try {
        const std::vector<int64_t> lengths =
            parse_length_buckets({reinterpret_cast<const char*>(data), size}, 8192);
        if (!std::ranges::is_sorted(lengths) || lengths.front() < 1 || lengths.back() != 8192) {
            std::abort();
        }
    } catch (const UsageError&) {
    }
    return 0;
}
