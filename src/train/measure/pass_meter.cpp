// SPDX-License-Identifier: Apache-2.0
// Each rank records its own passes; gather() exchanges the medians, so that all ranks compute with
// the same costs.
#include "src/train/measure/pass_meter.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

namespace vocabpipe {

namespace {

/// One kind of pass of one rank, as ranks exchange it.
struct Entry {
    int64_t wall = 0;
    int64_t cpu = 0;
    uint16_t stage = 0;
    Op op = Op::F;
    std::array<uint8_t, 5> unused{};
};

struct Header {
    int64_t median_step_ns = 0;
    int64_t fixed_ns = 0;
    int64_t local_wall = 0;
    int64_t local_cpu = 0;
    int64_t local_bytes = 0;
};

int64_t median(std::vector<int64_t> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

int64_t operand_bytes(const Program& program, const Action& action) {
    int64_t bytes = 0;
    for (const uint32_t operand : program.operands_of(action)) {
        if (operand != kNoBuffer) bytes += static_cast<int64_t>(program.buffers[operand].bytes);
    }
    return bytes;
}

struct OwnTime {
    Pass pass;
    int64_t wall_ns = 0;
    int64_t cpu_ns = 0;
};

/// Divides the time of two passes of a pair that ran at the same time by their CPU time, so that
/// both together took it: `nested` of it belongs to neither.
void divide_time_of_pair(const Span& first, const Span& second, int64_t nested, OwnTime& of_first,
                         OwnTime& of_second) {
    const int64_t both = std::max(first.end_ns, second.end_ns) - first.begin_ns - nested;
    const double cpu = static_cast<double>(first.cpu_ns + second.cpu_ns);
    of_first.wall_ns =
        cpu > 0 ? std::llround(static_cast<double>(both) * static_cast<double>(first.cpu_ns) / cpu)
                : both / 2;
    of_second.wall_ns = both - of_first.wall_ns;
}

/// Own times of the passes among one rank's spans: without local actions, which run on the same
/// thread and may interrupt a pass that polls, and without waits for rows that arrive by pieces.
std::vector<OwnTime> own_times(std::span<const Span> spans, std::span<const PieceWait> waits,
                               const Program& program) {
    std::vector<std::pair<int64_t, int64_t>> other;
    for (const Span& span : spans) {
        if (span.lane == Lane::local) other.emplace_back(span.begin_ns, span.end_ns);
    }
    for (const PieceWait& wait : waits) other.emplace_back(wait.begin_ns, wait.end_ns);
    std::sort(other.begin(), other.end());
    for (size_t i = 1; i < other.size(); ++i) {  // a local action may run during a wait
        other[i].first = std::max(other[i].first, other[i - 1].second);
        other[i].second = std::max(other[i].second, other[i].first);
    }
    const auto nested_in = [&](int64_t begin_ns, int64_t end_ns) {
        int64_t nested = 0;
        auto inside = std::lower_bound(other.begin(), other.end(), std::pair(begin_ns, int64_t{0}));
        for (; inside != other.end() && inside->second <= end_ns; ++inside) {
            nested += inside->second - inside->first;
        }
        return nested;
    };
    std::vector<OwnTime> times;
    const Span* before = nullptr;  // the pass that began before
    for (const Span& span : spans) {
        const Action& action = program.actions[span.action];
        if (action.what != Do::pass) continue;
        times.push_back(
            {.pass = program.passes[action.item],
             .wall_ns = span.end_ns - span.begin_ns - nested_in(span.begin_ns, span.end_ns),
             .cpu_ns = span.cpu_ns});
        if (before != nullptr && action.pair_member == 2 && span.begin_ns < before->end_ns) {
            const int64_t end = std::max(span.end_ns, before->end_ns);
            divide_time_of_pair(*before, span, nested_in(before->begin_ns, end),
                                times[times.size() - 2], times.back());
        }
        before = &span;
    }
    return times;
}

template <typename T>
void append(std::vector<std::byte>& out, std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

ReplayCosts::ReplayCosts(const Timeline& executed, const std::vector<Program>& programs,
                         const TableCosts& table)
    : table_(table) {
    std::vector<std::vector<Span>> by_rank(programs.size());
    std::vector<std::vector<PieceWait>> waits(programs.size());
    for (const Span& span : executed.spans) by_rank[span.rank].push_back(span);
    for (const PieceWait& wait : executed.piece_waits) waits[wait.rank].push_back(wait);
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        for (const OwnTime& own : own_times(by_rank[rank], waits[rank], programs[rank])) {
            ns_[{static_cast<int>(rank), own.pass.op, own.pass.stage, own.pass.microbatch}] =
                own.wall_ns;
        }
    }
}

int64_t ReplayCosts::pass_ns(int rank, const Pass& pass) const {
    const auto found = ns_.find({rank, pass.op, pass.stage, pass.microbatch});
    return found == ns_.end() ? table_.pass_ns(rank, pass) : found->second;
}

void PassMeter::forget_durations() {
    durations_.clear();
    fixed_.clear();
}

void PassMeter::add_step(const Timeline& mine, const Program& program, int64_t duration_ns) {
    if (++steps_ == 2) {
        passes_.clear();
        forget_durations();
        local_ = {};
        local_bytes_ = 0;
    }
    if (mine.spans.empty()) return;
    const size_t at = (std::max(steps_, size_t{2}) - 2) % kWindow;
    const auto put = [at](auto& window, const auto& value) {
        if (at < window.size()) {
            window[at] = value;
        } else {
            window.push_back(value);
        }
    };

    int64_t first = INT64_MAX;
    int64_t last = INT64_MIN;
    for (const Span& span : mine.spans) {
        first = std::min(first, span.begin_ns);
        last = std::max(last, span.end_ns);
        if (span.lane != Lane::local) continue;
        local_.wall += span.end_ns - span.begin_ns;
        local_.cpu += span.cpu_ns;
        local_bytes_ += operand_bytes(program, program.actions[span.action]);
    }
    std::map<Key, std::pair<Sample, int64_t>> sums;
    for (const OwnTime& own : own_times(mine.spans, mine.piece_waits, program)) {
        auto& [sum, count] =
            sums[{own.pass.op, traits(own.pass.op).has_stage ? own.pass.stage : uint16_t{0}}];
        sum.wall += own.wall_ns;
        sum.cpu += own.cpu_ns;
        ++count;
    }
    for (const auto& [key, sum] : sums) {
        put(passes_[key], Sample{sum.first.wall / sum.second, sum.first.cpu / sum.second});
    }
    put(durations_, duration_ns);
    put(fixed_, duration_ns - (last - first));
}

MeasuredCosts PassMeter::gather(Communicator& communicator, Mesh mesh, int stages,
                                bool cpu_time) const {
    std::vector<std::byte> mine;
    const Header header{.median_step_ns = median(durations_),
                        .fixed_ns = median(fixed_),
                        .local_wall = local_.wall,
                        .local_cpu = local_.cpu,
                        .local_bytes = local_bytes_};
    append(mine, std::span(&header, 1));
    std::vector<Entry> entries;
    for (const auto& [key, window] : passes_) {
        std::vector<int64_t> wall;
        std::vector<int64_t> cpu;
        for (const Sample& sample : window) {
            wall.push_back(sample.wall);
            cpu.push_back(sample.cpu);
        }
        entries.push_back(
            {.wall = median(wall), .cpu = median(cpu), .stage = key.second, .op = key.first});
    }
    append(mine, std::span<const Entry>(entries));

    MeasuredCosts costs;
    Header sum;
    for (TableCosts* table : {&costs.wall, &costs.cpu}) {
        table->stage_ns.resize(static_cast<size_t>(stages));
        table->rank_ns.resize(static_cast<size_t>(mesh.pipeline));
        table->slices = mesh.slices();
    }
    const auto all = communicator.all_gather(mine);
    for (size_t rank = 0; rank < all.size(); ++rank) {
        Header one;
        std::memcpy(&one, all[rank].data(), sizeof one);
        if (rank == 0) costs.median_step_ns = one.median_step_ns;
        costs.wall.fixed_ns = std::max(costs.wall.fixed_ns, one.fixed_ns);
        sum.local_wall += one.local_wall;
        sum.local_cpu += one.local_cpu;
        sum.local_bytes += one.local_bytes;
        if (mesh.slice(mesh.place(static_cast<int>(rank))) != 0) continue;
        const auto row = static_cast<size_t>(mesh.pipeline_rank(static_cast<int>(rank)));
        for (size_t at = sizeof one; at < all[rank].size(); at += sizeof(Entry)) {
            Entry entry;
            std::memcpy(&entry, all[rank].data() + at, sizeof entry);
            const auto op = static_cast<size_t>(entry.op);
            const auto set = [&](TableCosts& table, int64_t ns) {
                (traits(entry.op).has_stage ? table.stage_ns[entry.stage]
                                            : table.rank_ns[row])[op] = ns;
            };
            set(costs.wall, entry.wall);
            set(costs.cpu, cpu_time ? entry.cpu : entry.wall);
        }
    }
    const auto rate = [&](int64_t ns) {
        return ns > 0 ? static_cast<double>(sum.local_bytes) / static_cast<double>(ns) : 0;
    };
    costs.wall.local_bytes_per_ns = rate(sum.local_wall);
    costs.cpu.local_bytes_per_ns = rate(cpu_time ? sum.local_cpu : sum.local_wall);
    return costs;
}

std::vector<Op> derive_missing(TableCosts& costs, const std::vector<bool>& trained) {
    std::array<bool, kOpTraits.size()> derived{};
    for (size_t s = 0; s < costs.stage_ns.size(); ++s) {
        TableCosts::OpCosts& stage = costs.stage_ns[s];
        const auto cost = [&](Op op) -> int64_t& { return stage[static_cast<size_t>(op)]; };
        const auto derive = [&](Op op, int64_t value) {
            cost(op) = value;
            derived[static_cast<size_t>(op)] = true;
        };
        const int64_t b = cost(Op::B);
        const int64_t i = cost(Op::I);
        const int64_t w = cost(Op::W);
        if (b == 0 && i + w > 0) derive(Op::B, i + w);
        const bool has_weights = trained.empty() || trained[s];
        const int64_t of_weights = has_weights ? b - b / 2 : 0;
        if (i == 0 && b > 0) derive(Op::I, b - of_weights);
        if (w == 0 && of_weights > 0) derive(Op::W, of_weights);
        for (const Op op : {Op::F, Op::B, Op::I, Op::W}) {
            cost(op) = std::max<int64_t>(cost(op), 1);
        }
    }
    std::vector<Op> ops;
    for (const Op op : {Op::B, Op::I, Op::W}) {
        if (derived[static_cast<size_t>(op)]) ops.push_back(op);
    }
    return ops;
}

}  // namespace vocabpipe
