// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: parse_adapter_config() returns adapters whose configuration prints and parses
// to itself, or throws InputFileError.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "src/model/config_json/lora_keys.hpp"
#include "src/train/checkpoint/adapter_config.hpp"
#include "vocabpipe/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    LoraConfig lora;
    try {
        lora = parse_adapter_config({reinterpret_cast<const char*>(data), size}, "adapter.json");
    } catch (const InputFileError&) {
        return 0;
    }
    const StrictJson again = StrictJson::parse(print_lora(lora).dump(), "again");
    if (read_lora(again) != lora) std::abort();
    return 0;
}
