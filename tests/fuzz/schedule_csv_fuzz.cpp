// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: parse_schedule_csv() returns a valid schedule that prints and parses to
// itself, or throws InputFileError. The first byte chooses the dialect.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "vocabpipe/error.hpp"
#include "vocabpipe/schedule_file.hpp"
#include "vocabpipe/validate.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    try {
        const Schedule schedule =
            parse_schedule_csv(text, "f.csv", {.dialect = static_cast<CsvDialect>(data[0] % 4)})
                .schedule;
        if (find_violation(schedule)) std::abort();
        const std::string printed = print_schedule_csv(schedule, CsvDialect::vocabpipe);
        const Schedule again = parse_schedule_csv(printed, "again.csv").schedule;
        if (again.passes != schedule.passes || again.output != schedule.output ||
            again.input != schedule.input || again.barriers != schedule.barriers ||
            again.rank_of_stage != schedule.rank_of_stage) {
            std::abort();
        }
    } catch (const InputFileError&) {
    }
    return 0;
}
