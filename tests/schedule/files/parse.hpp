// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/error.hpp"
#include "vocabpipe/schedule_file.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::testing {

/// The lists of a CSV as text, "0F0 0B0" per rank; "&" joins an overlapped pair.
inline std::vector<std::string> csv_lists_of(const Schedule& schedule) {
    std::vector<std::string> lists;
    for (const auto& list : schedule.passes) {
        std::string& text = lists.emplace_back();
        for (const Pass& pass : list) {
            text += to_string(pass) + (pass.with_next ? "&" : " ");
        }
        if (!text.empty()) text.pop_back();
    }
    return lists;
}

inline ScheduleFile from_csv(std::string_view text, CsvDialect dialect = CsvDialect::current,
                             int ranks = 0) {
    return parse_schedule_csv(text, "a.csv", {.dialect = dialect, .ranks = ranks});
}

/// The error of a CSV that must be refused.
inline std::string refused_csv(std::string_view text, CsvDialect dialect = CsvDialect::current,
                               int ranks = 0) {
    try {
        (void)from_csv(text, dialect, ranks);
    } catch (const InputFileError& error) {
        return error.what();
    }
    return "accepted";
}

}  // namespace vocabpipe::testing
