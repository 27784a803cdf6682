// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: parse_training_state() returns a state that prints and parses to itself, or
// throws InputFileError.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "src/train/checkpoint/training_state.hpp"
#include "vocabpipe/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    TrainingState state;
    try {
        state = parse_training_state({reinterpret_cast<const char*>(data), size}, "training.json");
    } catch (const InputFileError&) {
        return 0;
    }
    const std::string printed = print_training_state(state);
    if (print_training_state(parse_training_state(printed, "again")) != printed) std::abort();
    return 0;
}
