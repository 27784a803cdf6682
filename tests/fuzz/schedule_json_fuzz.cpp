// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: parse_schedule_json() returns a valid schedule that prints and parses to
// itself, or throws InputFileError.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "vocabpipe/error.hpp"
#include "vocabpipe/schedule_file.hpp"
#include "vocabpipe/validate.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    try {
        const Schedule schedule =
            parse_schedule_json({reinterpret_cast<const char*>(data), size}, "f.json").schedule;
        if (find_violation(schedule)) std::abort();
        const std::string printed = print_schedule_json(schedule);
        if (print_schedule_json(parse_schedule_json(printed, "again.json").schedule) != printed) {
            std::abort();
        }
    } catch (const InputFileError&) {
    }
    return 0;
}
