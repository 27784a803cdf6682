// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/memory_over_time.hpp"

#include "src/schedule/spans_by_action.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <limits>

namespace vocabpipe {

namespace {

struct Life {
    int64_t born_ns = std::numeric_limits<int64_t>::max();
    int64_t dies_ns = std::numeric_limits<int64_t>::min();
};

/// When each action runs.
std::vector<Life> runs_of(const Program& program, size_t rank, const SpansByAction& spans) {
    std::vector<Life> runs(program.actions.size());
    for (uint32_t i = 0; i < program.actions.size(); ++i) {
        const Span* span = spans.of(rank, i);
        if (span != nullptr) runs[i] = {span->begin_ns, span->end_ns};
    }
    return runs;
}

/// A buffer lives from the begin of its first user to the end of its last.
std::vector<Life> buffer_lives(const Program& program, const std::vector<Life>& runs) {
    std::vector<Life> lives(program.buffers.size());
    for (uint32_t i = 0; i < program.actions.size(); ++i) {
        for (const uint32_t operand : program.operands_of(program.actions[i])) {
            if (operand == kNoBuffer) continue;
            Life& life = lives[operand];
            life.born_ns = std::min(life.born_ns, runs[i].born_ns);
            life.dies_ns = std::max(life.dies_ns, runs[i].dies_ns);
        }
    }
    return lives;
}

constexpr int64_t kUseFactor = 8;  // a power of two, at least kMemoryUses

RankMemory memory_of(const Program& program, size_t rank, const SpansByAction& spans,
                     const PersistentBytes& persistent) {
    RankMemory memory;
    memory.persistent = persistent;
    const std::vector<Life> lives = buffer_lives(program, runs_of(program, rank, spans));
    // (time, bytes and use in one number): sorts fast, and frees first.
    std::vector<std::pair<int64_t, int64_t>> changes;
    changes.reserve(2 * lives.size());
    for (size_t b = 0; b < lives.size(); ++b) {
        const Buffer& buffer = program.buffers[b];
        if (buffer.space != Buffer::Space::arena || lives[b].dies_ns <= lives[b].born_ns) continue;
        const auto use = static_cast<int64_t>(memory_use(buffer.purpose));
        const auto bytes = static_cast<int64_t>(buffer.bytes);
        changes.emplace_back(lives[b].born_ns, bytes * kUseFactor + use);
        changes.emplace_back(lives[b].dies_ns, -bytes * kUseFactor + use);
    }
    std::sort(changes.begin(), changes.end());
    memory.changes.reserve(changes.size());
    for (const auto& [at, what] : changes) {
        const int64_t use = what & (kUseFactor - 1);
        memory.changes.push_back({at, (what - use) / kUseFactor, static_cast<MemoryUse>(use)});
    }
    const auto row = [](MemoryUse use) { return static_cast<size_t>(use); };
    std::array<int64_t, kMemoryUses> alive{};
    alive[row(MemoryUse::weights)] = static_cast<int64_t>(persistent.weights);
    alive[row(MemoryUse::gradients)] = static_cast<int64_t>(persistent.gradients);
    alive[row(MemoryUse::optimizer)] = static_cast<int64_t>(persistent.optimizer);
    std::array<int64_t, kMemoryUses> largest = alive;
    std::array<int64_t, kMemoryUses> at_peak = alive;
    int64_t sum = 0;
    for (const int64_t bytes : alive) sum += bytes;
    int64_t peak = sum;
    if (!memory.changes.empty()) memory.peak_at_ns = memory.changes.front().at_ns;
    for (const MemoryChange& change : memory.changes) {
        int64_t& of_use = alive[row(change.use)];
        of_use += change.bytes;
        largest[row(change.use)] = std::max(largest[row(change.use)], of_use);
        sum += change.bytes;
        if (sum > peak) {
            peak = sum;
            at_peak = alive;
            memory.peak_at_ns = change.at_ns;
        }
    }
    memory.peak_bytes = static_cast<uint64_t>(peak);
    for (size_t use = 0; use < kMemoryUses; ++use) {
        memory.at_peak[use] = static_cast<uint64_t>(at_peak[use]);
        memory.largest[use] = static_cast<uint64_t>(largest[use]);
    }
    return memory;
}

}  // namespace

std::string_view to_string(MemoryUse use) {
    constexpr std::array<std::string_view, kMemoryUses> names{
        "weights",    "gradients",     "optimizer", "activations",
        "vocabulary", "communication", "workspace"};
    return names[static_cast<size_t>(use)];
}

MemoryUse memory_use(Purpose purpose) {
    switch (purpose) {
        case Purpose::boundary:
        case Purpose::activation:
            return MemoryUse::activations;
        case Purpose::vocabulary:
            return MemoryUse::vocabulary;
        case Purpose::workspace:
            return MemoryUse::workspace;
        case Purpose::stage_weights:
            return MemoryUse::weights;
        case Purpose::stage_gradients:
            return MemoryUse::gradients;
        default:
            return MemoryUse::communication;
    }
}

std::vector<RankMemory> memory_over_time(const Timeline& timeline,
                                         const std::vector<Program>& programs,
                                         std::span<const PersistentBytes> persistent) {
    if (!persistent.empty() && persistent.size() != programs.size()) {
        throw UsageError("persistent bytes are set for " + std::to_string(persistent.size()) +
                         " ranks, but the programs have " + std::to_string(programs.size()));
    }
    const SpansByAction spans(timeline, programs);
    std::vector<RankMemory> memory;
    memory.reserve(programs.size());
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        memory.push_back(memory_of(programs[rank], rank, spans,
                                   persistent.empty() ? PersistentBytes{} : persistent[rank]));
    }
    return memory;
}

}  // namespace vocabpipe
