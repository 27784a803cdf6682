// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/trace_reader.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>

namespace vocabpipe::testing {

namespace {

using Json = nlohmann::json;

int64_t ns(const Json& microseconds) {
    return std::llround(microseconds.get<double>() * 1000);
}

void read_event(const Json& event, Trace& trace) {
    const std::string kind = event.at("ph");
    const int rank = event.at("pid");
    if (kind == "X") {
        const Json& args = event.at("args");
        Trace::Slice slice;
        slice.name = event.at("name");
        slice.category = event.at("cat");
        slice.waited_for = args.at("waited_for");
        slice.rank = rank;
        slice.track = event.at("tid");
        slice.begin = ns(event.at("ts"));
        slice.end = slice.begin + ns(event.at("dur"));
        slice.action = args.at("action");
        slice.order = args.at("order");
        slice.cpu = ns(args.at("cpu_us"));
        trace.slices.push_back(std::move(slice));
    } else if (kind == "s" || kind == "f") {
        trace.flow_ends.push_back(
            {kind == "s", event.at("id"), rank, event.at("tid"), ns(event.at("ts"))});
    } else if (kind == "C") {
        const Json& args = event.at("args");
        if (args.size() != 1) throw std::runtime_error("a counter with several values");
        trace.counters.push_back(
            {event.at("name"), rank, ns(event.at("ts")), args.begin().value().get<int64_t>()});
    } else if (kind == "M") {
        const std::string what = event.at("name");
        if (what == "process_name") trace.processes[rank] = event.at("args").at("name");
        if (what == "thread_name") {
            trace.tracks[{rank, event.at("tid")}] = event.at("args").at("name");
        }
    } else {
        throw std::runtime_error("an event of kind " + kind);
    }
}

}  // namespace

Trace written_and_read_back(const Timeline& timeline, const std::vector<Program>& programs,
                            const std::string& title) {
    const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                       ("vocabpipe-trace-" + std::to_string(getpid()) + ".json");
    write_chrome_trace(path.string(), timeline, programs, title);
    std::ifstream file(path);
    const Json json = Json::parse(file);
    file.close();
    std::filesystem::remove(path);
    Trace trace;
    trace.title = json.at("otherData").at("title");
    for (const Json& event : json.at("traceEvents")) read_event(event, trace);
    return trace;
}

void expect_sound_trace(const Trace& trace, const Timeline& timeline,
                        const std::vector<Program>& programs) {
    ASSERT_EQ(trace.processes.size(), programs.size());
    for (const Program& program : programs) {
        ASSERT_EQ(trace.processes.at(program.rank), "rank " + std::to_string(program.rank));
    }

    int64_t origin = INT64_MAX;
    std::map<std::pair<int, uint32_t>, const Span*> spans;
    for (const Span& span : timeline.spans) {
        spans[{span.rank, span.action}] = &span;
        origin = std::min(origin, span.begin_ns);
    }
    std::set<std::pair<int, uint32_t>> seen;
    std::map<std::pair<int, int>, std::vector<const Trace::Slice*>> by_track;
    for (const Trace::Slice& slice : trace.slices) {
        ASSERT_TRUE(seen.insert({slice.rank, slice.action}).second) << slice.name << " twice";
        const Program& program = programs.at(static_cast<size_t>(slice.rank));
        const Action& action = program.actions.at(slice.action);
        const Span& span = *spans.at({slice.rank, slice.action});
        ASSERT_EQ(slice.name, program.name_of(action));
        ASSERT_EQ(slice.category, to_string(action.lane));
        ASSERT_EQ(slice.order, action.order);
        ASSERT_EQ(slice.begin, span.begin_ns - origin);
        ASSERT_EQ(slice.end, span.end_ns - origin);
        ASSERT_EQ(slice.cpu, span.cpu_ns);
        ASSERT_EQ(slice.waited_for, span.waited_for == UINT32_MAX
                                        ? "nothing"
                                        : program.name_of(program.actions.at(span.waited_for)));
        const std::string track = trace.tracks.at({slice.rank, slice.track});
        ASSERT_EQ(track.substr(0, slice.category.size()), slice.category);
        by_track[{slice.rank, slice.track}].push_back(&slice);
    }
    size_t actions = 0;
    for (const Program& program : programs) actions += program.actions.size();
    ASSERT_EQ(trace.slices.size(), actions);

    for (auto& [track, slices] : by_track) {
        std::stable_sort(slices.begin(), slices.end(),
                         [](const auto* a, const auto* b) { return a->begin < b->begin; });
        for (size_t i = 1; i < slices.size(); ++i) {
            ASSERT_GE(slices[i]->begin, slices[i - 1]->end)
                << slices[i - 1]->name << " and " << slices[i]->name << " on rank " << track.first
                << ", track " << track.second;
        }
    }

    // A flow per message: from the send's slice to the receive's, on another rank.
    std::map<uint32_t, std::vector<const Trace::FlowEnd*>> flows;
    for (const Trace::FlowEnd& end : trace.flow_ends) flows[end.id].push_back(&end);
    size_t messages = 0;
    for (const Program& program : programs) {
        for (uint32_t i = 0; i < program.actions.size(); ++i) {
            const Action& action = program.actions[i];
            const bool sends = action.what == Do::send;
            if (!sends && action.what != Do::receive) continue;
            messages += sends ? 1 : 0;
            const auto& ends = flows[action.order];
            ASSERT_EQ(ends.size(), 2U);
            const auto mine = std::find_if(ends.begin(), ends.end(), [&](const auto* end) {
                return end->begins == sends && end->rank == program.rank;
            });
            ASSERT_NE(mine, ends.end());
            const Span& span = *spans.at({program.rank, i});
            ASSERT_EQ((*mine)->at, (sends ? span.begin_ns : span.end_ns) - origin);
            const auto slice = std::find_if(
                trace.slices.begin(), trace.slices.end(), [&](const Trace::Slice& candidate) {
                    return candidate.rank == program.rank && candidate.action == i;
                });
            ASSERT_EQ((*mine)->track, slice->track);
        }
    }
    ASSERT_EQ(flows.size(), messages);

    std::map<std::pair<std::string, int>, std::vector<const Trace::Counter*>> series;
    for (const Trace::Counter& counter : trace.counters) {
        series[{counter.name, counter.rank}].push_back(&counter);
    }
    for (const auto& [key, values] : series) {
        for (size_t i = 0; i < values.size(); ++i) {
            ASSERT_GE(values[i]->value, 0) << key.first;
            if (i > 0) {
                ASSERT_GT(values[i]->at, values[i - 1]->at) << key.first;
            }
        }
        ASSERT_EQ(values.back()->value, 0) << key.first;
    }
}

}  // namespace vocabpipe::testing
