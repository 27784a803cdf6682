// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/program_tools.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace vocabpipe::testing {

std::string name_of(const Kind& kind) {
    std::string family = kind.family == "1f1b" ? "one_f_one_b" : kind.family;
    std::replace(family.begin(), family.end(), '-', '_');
    return family + "_" + std::string(to_string(kind.mode)) +
           (kind.forward_only ? "_forward_only" : "");
}

void PrintTo(const Kind& kind, std::ostream* out) {
    *out << name_of(kind);
}

std::vector<Kind> every_kind(bool with_evaluation) {
    std::vector<Kind> kinds;
    for (const Generator& generator : generators()) {
        for (const VocabMode mode :
             {VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
              VocabMode::one_barrier, VocabMode::two_barriers}) {
            kinds.push_back({std::string(generator.name), mode, false});
            if (with_evaluation) kinds.push_back({std::string(generator.name), mode, true});
        }
    }
    return kinds;
}

Schedule generated(const Kind& kind, int ranks, int microbatches, int64_t vocab_size) {
    return make_schedule(kind.family, {.ranks = ranks,
                                       .microbatches = microbatches,
                                       .vocab_mode = kind.mode,
                                       .vocab_size = vocab_size,
                                       .forward_only = kind.forward_only});
}

StepSizes sizes_for(const Schedule& schedule, int64_t tokens, int64_t hidden) {
    StepSizes sizes;
    sizes.tokens = tokens;
    sizes.hidden = hidden;
    sizes.dtype = DType::fp32;
    const int64_t boundary = tokens * hidden * 4;
    sizes.stages.assign(static_cast<size_t>(schedule.stages), {.saved = 10 * boundary,
                                                               .for_weight = 3 * boundary,
                                                               .forward_workspace = 2 * boundary,
                                                               .backward_workspace = 5 * boundary,
                                                               .input_gradient_workspace = 4096,
                                                               .weight_gradient_workspace = 8192});
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        const int64_t rows = schedule.output.rows(rank);
        sizes.shards.push_back({.exp_logits = tokens * rows * 4,
                                .score_workspace = rows > 0 ? 512 : 0,
                                .weight_gradient_workspace = rows * 16});
    }
    return sizes;
}

void add_random_lengths(StepSizes& sizes, const Schedule& schedule, std::mt19937& random) {
    const auto most = static_cast<int>(1 + random() % 3);
    for (int k = 0; k < most; ++k) {
        StepSizes of_length = random_sizes(schedule, random);
        LengthSizes length{
            .tokens = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(sizes.tokens)),
            .stages = of_length.stages,
            .shards = of_length.shards};
        for (size_t rank = 0; rank < length.shards.size(); ++rank) {
            length.shards[rank].exp_logits =
                length.tokens * schedule.output.rows(static_cast<int>(rank)) * size_of(sizes.dtype);
        }
        sizes.shorter.push_back(std::move(length));
    }
    sizes.length_of_microbatch.clear();
    for (int j = 0; j < schedule.microbatches; ++j) {
        sizes.length_of_microbatch.push_back(
            static_cast<int>(random() % static_cast<unsigned>(most + 1)));
    }
}

StepSizes random_sizes(const Schedule& schedule, std::mt19937& random) {
    const auto bytes = [&] {
        return random() % 5 == 0 ? int64_t{0} : static_cast<int64_t>(random() % 20000);
    };
    StepSizes sizes;
    sizes.tokens = 1 + static_cast<int64_t>(random() % 40);
    sizes.hidden = 1 + static_cast<int64_t>(random() % 60);
    sizes.dtype = random() % 2 == 0 ? DType::fp32 : DType::bf16;
    sizes.report_bytes = random() % 2 == 0 ? 0 : 8 * static_cast<int64_t>(random() % 100);
    for (int stage = 0; stage < schedule.stages; ++stage) {
        sizes.stages.push_back({bytes(), bytes(), bytes(), bytes(), bytes(), bytes(), bytes()});
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        sizes.shards.push_back(
            {sizes.tokens * schedule.output.rows(rank) * size_of(sizes.dtype), bytes(), bytes()});
    }
    return sizes;
}

TableCosts uneven_costs(const Schedule& schedule) {
    TableCosts costs =
        TableCosts::uniform(schedule.ranks, schedule.stages, 100'000, 197'000, 23'000);
    for (size_t stage = 0; stage < costs.stage_ns.size(); ++stage) {
        for (int64_t& ns : costs.stage_ns[stage]) ns += ns * static_cast<int64_t>(stage % 3) / 10;
    }
    for (size_t rank = 0; rank < costs.rank_ns.size(); ++rank) {
        for (int64_t& ns : costs.rank_ns[rank]) ns += ns * static_cast<int64_t>(rank % 2) / 7;
    }
    costs.latency_ns = 3'001;
    costs.bytes_per_ns = 0.37;
    costs.local_bytes_per_ns = 2.9;
    return costs;
}

std::vector<Program> lowered(const Schedule& schedule) {
    return lower(schedule, sizes_for(schedule), uneven_costs(schedule));
}

bool has_participants(const Action& action) {
    switch (action.what) {
        case Do::pass:
        case Do::combine_softmax:
        case Do::ordered_sum:
            return false;
        case Do::send:
        case Do::receive:
        case Do::broadcast:
        case Do::all_gather:
        case Do::all_to_all:
        case Do::gather:
        case Do::all_gather_v:
        case Do::reduce:
            return true;
    }
    throw std::logic_error("a new kind of action");
}

const Pass& pass_of(const Program& program, const Action& action) {
    if (action.what != Do::pass) throw std::logic_error("not a pass");
    return program.passes.at(action.item);
}

std::vector<std::vector<uint32_t>> users_of_buffers(const Program& program) {
    std::vector<std::vector<uint32_t>> users(program.buffers.size());
    for (uint32_t i = 0; i < program.actions.size(); ++i) {
        for (const uint32_t buffer : program.operands_of(program.actions[i])) {
            if (buffer == kNoBuffer) continue;
            std::vector<uint32_t>& of_buffer = users.at(buffer);
            if (of_buffer.empty() || of_buffer.back() != i) of_buffer.push_back(i);
        }
    }
    return users;
}

HappensBefore::HappensBefore(const Program& program) {
    const size_t nodes = 2 * program.actions.size();
    words_ = (nodes + 63) / 64;
    std::vector<std::vector<size_t>> next(nodes);
    const auto begin_of = [](size_t action) { return 2 * action; };
    const auto end_of = [](size_t action) { return 2 * action + 1; };
    std::array<size_t, kLanes> last{};
    last.fill(SIZE_MAX);
    size_t second = SIZE_MAX;  // of a pair whose next pass has not come yet
    for (size_t i = 0; i < program.actions.size(); ++i) {
        next[begin_of(i)].push_back(end_of(i));
        const Lane lane = program.actions[i].lane;
        size_t& previous = last.at(static_cast<size_t>(lane));
        if (program.actions[i].pair_member == 2) {
            next[begin_of(previous)].push_back(begin_of(i));
            second = i;
            continue;
        }
        if (lane == Lane::compute && second != SIZE_MAX) {
            next[end_of(std::exchange(second, SIZE_MAX))].push_back(begin_of(i));
        }
        if (previous != SIZE_MAX) {
            next[lane == Lane::compute ? end_of(previous) : begin_of(previous)].push_back(
                begin_of(i));
        }
        previous = i;
    }
    for (const Edge& edge : program.edges) {
        if (edge.before >= edge.after) throw std::logic_error("edge that points backward");
        next.at(end_of(edge.before)).push_back(begin_of(edge.after));
    }
    reaches_.assign(nodes * words_, 0);
    for (size_t node = nodes; node-- > 0;) {
        for (const size_t after : next[node]) {
            reaches_[node * words_ + after / 64] |= uint64_t{1} << (after % 64);
            for (size_t w = 0; w < words_; ++w) {
                reaches_[node * words_ + w] |= reaches_[after * words_ + w];
            }
        }
    }
}

bool HappensBefore::ordered(uint32_t before, uint32_t after) const {
    const size_t from = 2 * size_t{before} + 1;
    const size_t to = 2 * size_t{after};
    return (reaches_[from * words_ + to / 64] >> (to % 64) & 1) != 0;
}

}  // namespace vocabpipe::testing
