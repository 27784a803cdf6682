// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: parse_shard_index() names files of the same folder, or throws InputFileError.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "src/train/checkpoint/tensor_folder.hpp"
#include "vocabpipe/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    try {
        for (const auto& [name, shard] :
             parse_shard_index({reinterpret_cast<const char*>(data), size}, "index.json")) {
            if (shard.empty() || shard.find('/') != std::string::npos) std::abort();
        }
    } catch (const InputFileError&) {
    }
    return 0;
}
