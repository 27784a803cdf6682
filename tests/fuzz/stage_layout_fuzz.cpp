// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: parse_stage_layout() returns a layout that prints and parses to itself, or
// throws UsageError.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "vocabpipe/error.hpp"
#include "vocabpipe/stage_layout.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    try {
        const StageLayout layout = parse_stage_layout({reinterpret_cast<const char*>(data), size});
        if (layout.layers.empty()) std::abort();
        if (parse_stage_layout(print_stage_layout(layout)) != layout) std::abort();
    } catch (const UsageError&) {
    }
    return 0;
}
