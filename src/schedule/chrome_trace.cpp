// SPDX-License-Identifier: Apache-2.0
// Chrome trace JSON for https://ui.perfetto.dev and chrome://tracing. Times in microseconds.
#include "src/schedule/place_text.hpp"
#include "src/schedule/rows_of_wait.hpp"
#include "src/schedule/spans_by_action.hpp"
#include "src/support/json_text.hpp"
#include "src/support/output_file.hpp"
#include "vocabpipe/memory_over_time.hpp"
#include "vocabpipe/timeline.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

namespace vocabpipe {

namespace {

/// Slices of one track must nest, so communications that overlap get further tracks of their lane.
constexpr int kTracksPerLane = 4096;

class Writer {
public:
    explicit Writer(OutputFile& file) : file_(file) {}

    template <typename... Args>
    void event(const char* format, Args... args) {
        std::array<char, 512> text;
        const int length = std::snprintf(text.data(), text.size(), format, args...);
        file_.write(std::string_view(first_ ? "\n" : ",\n"));
        first_ = false;
        file_.write(
            std::string_view(text.data(), std::min(static_cast<size_t>(length), text.size() - 1)));
    }

private:
    OutputFile& file_;
    bool first_ = true;
};

double us(int64_t ns) {
    return static_cast<double>(ns) / 1000.0;
}

const char* colour_of(const Program& program, const Action& action) {
    if (action.what != Do::pass) return "grey";
    switch (program.passes[action.item].op) {
        case Op::F:
            return "thread_state_running";
        case Op::B:
        case Op::I:
            return "thread_state_runnable";
        case Op::W:
            return "thread_state_iowait";
        case Op::R:
            return "thread_state_uninterruptible";
        case Op::S:
            return "rail_animation";
        case Op::T:
            return "rail_response";
        case Op::E:
        case Op::G:
            return "rail_idle";
        default:
            return "generic_work";
    }
}

void write_names(Writer& out, const std::vector<Program>& programs, const Mesh& mesh,
                 const std::map<std::pair<int, int>, int>& tracks) {
    for (const Program& program : programs) {
        out.event(R"({"name":"process_name","ph":"M","pid":%d,"args":{"name":"%s"}})", program.rank,
                  rank_text(mesh, program.rank).c_str());
        out.event(R"({"name":"process_sort_index","ph":"M","pid":%d,"args":{"sort_index":%d}})",
                  program.rank, program.rank);
    }
    for (const auto& [key, count] : tracks) {
        const auto [rank, lane] = key;
        for (int i = 0; i < count; ++i) {
            std::string name(to_string(static_cast<Lane>(lane)));
            if (i > 0) name.append(" ").append(std::to_string(i + 1));
            out.event(R"({"name":"thread_name","ph":"M","pid":%d,"tid":%d,"args":{"name":"%s"}})",
                      rank, lane * kTracksPerLane + i, name.c_str());
            out.event(
                R"({"name":"thread_sort_index","ph":"M","pid":%d,"tid":%d,"args":{"sort_index":%d}})",
                rank, lane * kTracksPerLane + i, lane * kTracksPerLane + i);
        }
    }
}

/// Microbatches whose activations are kept, as (time, change) pairs.
std::vector<std::pair<int64_t, int64_t>> in_flight(const Program& program,
                                                   const SpansByAction& spans, size_t rank) {
    const bool evaluation =
        std::none_of(program.passes.begin(), program.passes.end(),
                     [](const Pass& pass) { return pass.op == Op::B || pass.op == Op::W; });
    std::vector<std::pair<int64_t, int64_t>> changes;
    for (uint32_t i = 0; i < program.actions.size(); ++i) {
        const Span* span = spans.of(rank, i);
        if (span == nullptr || program.actions[i].what != Do::pass) continue;
        const Op op = program.passes[program.actions[i].item].op;
        if (op == Op::F) changes.emplace_back(span->begin_ns, 1);
        const Op last = evaluation ? Op::F : Op::B;
        if (op == last || op == Op::W) changes.emplace_back(span->end_ns, -1);
    }
    std::sort(changes.begin(), changes.end());
    return changes;
}

/// Bytes alive and microbatches in flight over time.
void write_counters(Writer& out, int rank, const RankMemory& memory,
                    const std::vector<std::pair<int64_t, int64_t>>& flight, int64_t origin) {
    const auto series = [&](const char* name, const char* unit,
                            const std::vector<std::pair<int64_t, int64_t>>& changes) {
        int64_t value = 0;
        for (size_t i = 0; i < changes.size(); ++i) {
            value += changes[i].second;
            if (i + 1 < changes.size() && changes[i + 1].first == changes[i].first) continue;
            out.event(R"({"name":"%s","ph":"C","pid":%d,"ts":%.3f,"args":{"%s":%lld}})", name, rank,
                      us(changes[i].first - origin), unit, static_cast<long long>(value));
        }
    };
    std::vector<std::pair<int64_t, int64_t>> bytes;
    bytes.reserve(memory.changes.size());
    for (const MemoryChange& change : memory.changes) {
        bytes.emplace_back(change.at_ns, change.bytes);
    }
    series("bytes alive", "bytes", bytes);
    series("microbatches in flight", "microbatches", flight);
}

}  // namespace

void write_chrome_trace(const std::string& path, const Timeline& timeline,
                        const std::vector<Program>& programs, const std::string& title,
                        const Mesh& mesh) {
    OutputFile file(path);
    nlohmann::ordered_json other{{"title", title}};
    if (mesh.slices() > 1) {
        other["mesh"] = {{"pipeline", mesh.pipeline},
                         {"data", mesh.data},
                         {"context", mesh.context},
                         {"tensor", mesh.tensor}};
    }
    file.write(R"({"displayTimeUnit":"ns","otherData":)" + json_text(other) +
               R"(,"traceEvents":[)");
    Writer out(file);

    std::vector<const Span*> spans;
    int64_t origin = INT64_MAX;
    for (const Span& span : timeline.spans) {
        spans.push_back(&span);
        origin = std::min(origin, span.begin_ns);
    }
    std::sort(spans.begin(), spans.end(), [](const Span* a, const Span* b) {
        return std::tie(a->begin_ns, a->rank, a->action) <
               std::tie(b->begin_ns, b->rank, b->action);
    });

    std::map<std::pair<int, int>, std::vector<int64_t>> busy_until;  // (rank, lane) -> per track
    for (const Span* span : spans) {
        const Program& program = programs[span->rank];
        const Action& action = program.actions[span->action];
        auto& tracks = busy_until[{span->rank, static_cast<int>(span->lane)}];
        size_t track = 0;
        while (track < tracks.size() && tracks[track] > span->begin_ns) ++track;
        track = std::min<size_t>(track, kTracksPerLane - 1);
        if (track == tracks.size()) tracks.push_back(0);
        tracks[track] = span->end_ns;
        const int tid = static_cast<int>(span->lane) * kTracksPerLane + static_cast<int>(track);
        const std::string name = program.name_of(action);
        const std::string waited = span->waited_for == UINT32_MAX
                                       ? "nothing"
                                       : program.name_of(program.actions[span->waited_for]);
        const std::string waited_action =
            span->waited_for == UINT32_MAX
                ? ""
                : R"(,"waited_action":)" + std::to_string(span->waited_for);
        out.event(
            R"({"name":"%s","cat":"%s","cname":"%s","ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,)"
            R"("args":{"action":%u,"order":%u,"cpu_us":%.3f,"waited_for":"%s"%s}})",
            name.c_str(), std::string(to_string(span->lane)).c_str(), colour_of(program, action),
            static_cast<int>(span->rank), tid, us(span->begin_ns - origin),
            us(span->end_ns - span->begin_ns), span->action, action.order, us(span->cpu_ns),
            waited.c_str(), waited_action.c_str());
        const bool sends = action.what == Do::send;
        if (sends || action.what == Do::receive) {
            const int64_t at = sends ? span->begin_ns : span->end_ns;
            out.event(R"({"name":"message","cat":"message","ph":"%s","id":%u,"pid":%d,"tid":%d,)"
                      R"("ts":%.3f%s})",
                      sends ? "s" : "f", action.order, static_cast<int>(span->rank), tid,
                      us(at - origin), sends ? "" : R"(,"bp":"e")");
        }
    }
    for (const PieceWait& wait : timeline.piece_waits) {  // within the slice of its pass
        const Program& program = programs[wait.rank];
        out.event(R"({"name":"waits for %s: %s","cat":"wait","cname":"terrible",)"
                  R"("ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f})",
                  rows_of_wait(program, wait).c_str(),
                  program.name_of(program.actions[wait.source]).c_str(),
                  static_cast<int>(wait.rank), static_cast<int>(Lane::compute) * kTracksPerLane,
                  us(wait.begin_ns - origin), us(wait.end_ns - wait.begin_ns));
    }
    std::map<std::pair<int, int>, int> tracks;
    for (const auto& [key, until] : busy_until) tracks[key] = static_cast<int>(until.size());
    write_names(out, programs, mesh, tracks);
    const SpansByAction by_action(timeline, programs);
    const std::vector<RankMemory> memory = memory_over_time(timeline, programs);
    for (size_t r = 0; r < programs.size(); ++r) {
        write_counters(out, programs[r].rank, memory[r], in_flight(programs[r], by_action, r),
                       origin);
    }
    file.write(std::string_view("\n]}\n"));
    file.publish();
}

}  // namespace vocabpipe
