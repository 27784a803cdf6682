// SPDX-License-Identifier: Apache-2.0
// Chrome trace JSON of a recorded run. Times in microseconds.
#include "src/schedule/place_text.hpp"
#include "src/support/json_text.hpp"
#include "src/support/output_file.hpp"
#include "vocabpipe/recorded_run.hpp"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

namespace vocabpipe {

namespace {

/// "1234.567" from nanoseconds: exact, which a double of microseconds is not.
std::string microseconds(int64_t ns) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "%lld.%03lld", static_cast<long long>(ns / 1000),
                  static_cast<long long>(ns % 1000));
    return text.data();
}

std::string slice_event(const RecordedRun& run, uint32_t index) {
    const RecordedRun::Slice& slice = run.slices[index];
    std::string name = run.names[slice.name];
    if (slice.number != RecordedRun::kNone) name += std::to_string(slice.number);
    const std::string lane(to_string(slice.lane));
    std::string text = R"({"name":)" + json_text(nlohmann::json(name)) + R"(,"cat":")" + lane +
                       R"(","ph":"X","pid":)" + std::to_string(slice.rank) + R"(,"tid":)" +
                       std::to_string(static_cast<int>(slice.lane)) + R"(,"ts":)" +
                       microseconds(slice.begin_ns) + R"(,"dur":)" +
                       microseconds(slice.end_ns - slice.begin_ns) + R"(,"args":{"action":)" +
                       std::to_string(index) + R"(,"cpu_us":)" + microseconds(slice.cpu_ns);
    if (slice.order != RecordedRun::kNone) text += R"(,"order":)" + std::to_string(slice.order);
    if (slice.waited_for != RecordedRun::kNone) {
        text += R"(,"waited_action":)" + std::to_string(slice.waited_for);
    }
    return text + "}}";
}

}  // namespace

void write_chrome_trace(const std::string& path, const RecordedRun& run) {
    OutputFile file(path);
    nlohmann::ordered_json other{{"title", run.title}};
    if (run.mesh.slices() > 1) {
        other["mesh"] = {{"pipeline", run.mesh.pipeline},
                         {"data", run.mesh.data},
                         {"context", run.mesh.context},
                         {"tensor", run.mesh.tensor}};
    }
    file.write(R"({"displayTimeUnit":"ns","otherData":)" + json_text(other) +
               R"(,"traceEvents":[)");
    for (int rank = 0; rank < run.ranks; ++rank) {
        file.write((rank == 0 ? "\n" : ",\n") +
                   (R"({"name":"process_name","ph":"M","pid":)" + std::to_string(rank)) +
                   R"(,"args":{"name":")" + rank_text(run.mesh, rank) + R"("}})");
    }
    for (uint32_t i = 0; i < run.slices.size(); ++i) file.write(",\n" + slice_event(run, i));
    file.write(std::string_view("\n]}\n"));
    file.publish();
}

}  // namespace vocabpipe
