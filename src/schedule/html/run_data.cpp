// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/html/run_data.hpp"

#include "src/schedule/place_text.hpp"
#include "src/schedule/slice_causes.hpp"
#include "src/support/json_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

namespace vocabpipe::html {

namespace {

using Slice = RecordedRun::Slice;

/// Writes a list of integers as JSON directly, for speed: a run has a million of them.
class IntegerList {
public:
    void add(int64_t value) {
        if (text_.size() > 1) text_ += ',';
        std::array<char, 24> digits{};
        text_.append(digits.data(),
                     std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
    }
    [[nodiscard]] std::string take() && { return std::move(text_) + "]"; }

private:
    std::string text_ = "[";
};

/// The colour of a slice, an index into kKinds of html/draw.js: one for each letter of a pass, one
/// for the passes of the step, one for local actions, one for communication.
int kind_of(std::string_view name, Lane lane) {
    constexpr int kStep = 9;
    constexpr int kCombine = 10;
    constexpr int kCommunication = 11;
    if (lane == Lane::local) return kCombine;
    if (lane != Lane::compute) return kCommunication;
    name.remove_prefix(std::min(name.find_first_not_of("0123456789"), name.size()));
    for (size_t op = 0; op < kOpTraits.size(); ++op) {
        if (!kOpTraits[op].of_step && name == kOpTraits[op].name) return static_cast<int>(op);
    }
    return kStep;
}

/// One value of every slice, as a column.
template <typename Value>
std::string column(std::string_view name, const std::vector<Slice>& slices, Value value) {
    IntegerList list;
    for (size_t i = 0; i < slices.size(); ++i) list.add(value(slices[i], i));
    return ",\"" + std::string(name) + "\":" + std::move(list).take();
}

int64_t or_minus_one(uint32_t value) {
    return value == RecordedRun::kNone ? -1 : static_cast<int64_t>(value);
}

bool same_track(const Slice& a, const Slice& b) {
    return a.rank == b.rank && a.lane == b.lane;
}

/// Memory per rank as [time since the previous change, purpose, units, ...]; a unit is the largest
/// number of bytes that divides every change.
std::string memory_of(const RecordedRun& run) {
    int64_t unit = 0;
    for (const auto& changes : run.memory) {
        for (const auto& change : changes) unit = std::gcd(unit, change.bytes);
    }
    unit = std::max<int64_t>(unit, 1);
    std::string text = ",\"bytes\":" + std::to_string(unit) + ",\"memory\":[";
    for (size_t rank = 0; rank < run.memory.size(); ++rank) {
        IntegerList list;
        int64_t before = 0;
        for (const auto& change : run.memory[rank]) {
            list.add(change.at_ns - std::exchange(before, change.at_ns));
            list.add(change.purpose);
            list.add(change.bytes / unit);
        }
        text += (rank == 0 ? "" : ",") + std::move(list).take();
    }
    return text + "]";
}

}  // namespace

std::string run_data(const RecordedRun& run) {
    const TimelineSummary summary = summarize(run);
    nlohmann::ordered_json head{{"title", run.title},
                                {"costs", run.costs},
                                {"ranks", run.ranks},
                                {"makespan", summary.makespan_ns},
                                {"largest_span", summary.largest_span_ns},
                                {"bubble", summary.bubble},
                                {"names", run.names},
                                {"purposes", run.purposes}};
    for (const RankSummary& rank : summary.ranks) head["busy"].push_back(rank.busy_ns);
    for (int rank = 0; run.mesh.slices() > 1 && rank < run.ranks; ++rank) {
        head["headings"].push_back(heading_text(run.mesh, rank));
        head["rows"].push_back(row_text(run.mesh, rank));
        head["places"].push_back(rank_text(run.mesh, rank));
    }
    std::vector<Lane> lane(run.names.size(), Lane::compute);
    for (const Slice& slice : run.slices) lane[slice.name] = slice.lane;
    for (size_t i = 0; i < lane.size(); ++i)
        head["kinds"].push_back(kind_of(run.names[i], lane[i]));
    std::vector<std::array<int64_t, 3>> tracks;  // rank, lane, slices
    for (size_t i = 0; i < run.slices.size(); ++i) {
        const Slice& slice = run.slices[i];
        if (i == 0 || !same_track(slice, run.slices[i - 1])) {
            tracks.push_back({slice.rank, static_cast<int64_t>(slice.lane), 0});
        }
        ++tracks.back()[2];
    }
    head["tracks"] = tracks;
    std::string text = json_text(head);
    text.pop_back();  // the columns follow
    const auto& slices = run.slices;
    text += column("begin", slices, [&](const Slice& slice, size_t i) {
        const bool first = i == 0 || !same_track(slice, slices[i - 1]);
        return slice.begin_ns - (first ? 0 : slices[i - 1].begin_ns);
    });
    text += column("duration", slices,
                   [](const Slice& slice, size_t) { return slice.end_ns - slice.begin_ns; });
    text += column("name", slices, [](const Slice& slice, size_t) { return slice.name; });
    text += column("number", slices,
                   [](const Slice& slice, size_t) { return or_minus_one(slice.number); });
    // Relative, so mostly small. No slice is its own cause, so 0 can mean "nothing".
    const std::vector<SliceCause> causes = slice_causes(run);
    text += column("cause", slices, [&](const Slice&, size_t i) {
        const uint32_t cause = causes[i].slice;
        return cause == RecordedRun::kNone ? 0
                                           : static_cast<int64_t>(i) - static_cast<int64_t>(cause);
    });
    text += column("member", slices, [&](const Slice&, size_t i) {
        return static_cast<int64_t>(i) - static_cast<int64_t>(causes[i].member);
    });
    text += column("order", slices,
                   [](const Slice& slice, size_t) { return or_minus_one(slice.order); });
    if (std::any_of(slices.begin(), slices.end(), [](const Slice& slice) {
            return slice.lane == Lane::compute && slice.cpu_ns != slice.end_ns - slice.begin_ns;
        })) {
        text += column("cpu", slices, [](const Slice& slice, size_t) { return slice.cpu_ns; });
    }
    return text + memory_of(run) + "}";
}

}  // namespace vocabpipe::html
