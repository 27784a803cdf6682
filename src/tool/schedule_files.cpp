// SPDX-License-Identifier: Apache-2.0
#include "src/tool/schedule_files.hpp"

#include <iostream>

#include "src/tool/text.hpp"
#include "vocabpipe/insert_vocabulary.hpp"

namespace vocabpipe::tool {

bool names_schedule_file(std::string_view name) {
    return name.ends_with(".csv") || name.ends_with(".json") ||
           name.find('/') != std::string_view::npos;
}

Schedule read_schedule_file(const std::string& path, const ReadScheduleOptions& options) {
    ScheduleFile file = read_schedule(path, options);
    for (const std::string& note : file.notes) {
        std::cerr << "vocabpipe: note: " + short_line(note) + "\n";
    }
    return std::move(file.schedule);
}

Schedule with_vocabulary(const Schedule& schedule) {
    if (schedule.input.vocab_size() > 0 || schedule.output.vocab_size() > 0) return schedule;
    return insert_vocabulary(schedule, {.mode = VocabMode::none, .vocab_size = 1});
}

}  // namespace vocabpipe::tool
