// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: parse_npy_header() returns a shape whose elements end where the file ends, or
// throws InputFileError of one line.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "src/select/files/npy/header.hpp"
#include "vocabpipe/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    try {
        const NpyHeader header =
            parse_npy_header(std::as_bytes(std::span(data, size)), size, "f.npy");
        const auto bytes = static_cast<uint64_t>(header.elements()) * item_size(header.type);
        if (header.elements() < 0 || header.data_begin + bytes != size) std::abort();
        for (const int64_t length : header.shape) {
            if (length < 0) std::abort();
        }
    } catch (const InputFileError& error) {
        if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    }
    return 0;
}
