// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: parse_model_config() returns a configuration that prints and parses to
// itself, or throws InputFileError.
#include <cstdint>
#include <string_view>

#include "src/model/config_json/model_config_json.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "vocabpipe/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    ModelConfig config;
    try {
        config = parse_model_config({reinterpret_cast<const char*>(data), size}, "config.json");
    } catch (const InputFileError&) {
        return 0;
    }
    check_same_model(parse_model_config(print_model_config(config), "again"), "again", config);
    return 0;
}
