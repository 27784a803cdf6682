// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: parse_safetensors_header() returns tensors that lie in the file end to end,
// or throws InputFileError of one line.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "src/support/safetensors/reader.hpp"
#include "vocabpipe/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    try {
        const SafetensorsHeader header =
            parse_safetensors_header(std::as_bytes(std::span(data, size)), size, "f.safetensors");
        uint64_t at = header.data_begin;
        for (const StoredTensor& tensor : header.tensors) {
            uint64_t bytes = item_size(tensor.type);
            for (const int64_t length : tensor.shape) bytes *= static_cast<uint64_t>(length);
            if (tensor.begin != at || tensor.end - tensor.begin != bytes) std::abort();
            at = tensor.end;
        }
        if (at != size) std::abort();
    } catch (const InputFileError& error) {
        if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    }
    return 0;
}
