// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/lower.hpp"

#include "src/schedule/lower/dataflow.hpp"
#include "src/schedule/lower/memory_plan.hpp"
#include "src/schedule/lower/ordering.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/validate.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

using lowering::Dataflow;
using lowering::Node;
using lowering::Part;
using lowering::Place;

/// FNV-1a over the numbers that make up a program.
class Hash {
public:
    template <typename T>
    void add(T value) {
        auto bits = static_cast<uint64_t>(value);
        for (int i = 0; i < 8; ++i) {
            state_ = (state_ ^ (bits & 0xff)) * 0x100000001b3ULL;
            bits >>= 8;
        }
    }
    [[nodiscard]] uint64_t value() const { return state_; }

private:
    uint64_t state_ = 0xcbf29ce484222325ULL;
};

void check_sizes(const Schedule& schedule, const StepSizes& sizes) {
    const auto expect = [](bool ok, const std::string& what) {
        if (!ok) throw UsageError("lowering: " + what);
    };
    expect(sizes.tokens >= 1 && sizes.hidden >= 1, "tokens and hidden size must be at least 1");
    expect(!schedule.input.owners().empty() && !schedule.output.owners().empty(),
           "the input and the output layer need at least one row each");
    expect(sizes.stages.size() == static_cast<size_t>(schedule.stages),
           "sizes are given for " + std::to_string(sizes.stages.size()) +
               " stages, the schedule has " + std::to_string(schedule.stages));
    expect(sizes.shards.size() == static_cast<size_t>(schedule.ranks),
           "sizes are given for " + std::to_string(sizes.shards.size()) +
               " output shards, the schedule has " + std::to_string(schedule.ranks) + " ranks");
}

/// Which parts (rank's view of a node) use a buffer.
struct Users {
    std::vector<uint32_t> first;  ///< CSR over buffers
    std::vector<uint32_t> nodes;
};

Users users_of_buffers(const Dataflow& flow) {
    Users users;
    users.first.assign(flow.buffers.size() + 1, 0);
    const auto each = [&](auto&& visit) {
        for (uint32_t node = 0; node < flow.nodes.size(); ++node) {
            const Node& n = flow.nodes[node];
            for (uint32_t p = n.first_part; p < n.first_part + n.part_count; ++p) {
                const Part& part = flow.parts[p];
                for (uint8_t i = 0; i < part.operand_count; ++i) {
                    if (part.operands[i] != kNoBuffer) visit(part.operands[i], node);
                }
            }
        }
    };
    each([&](uint32_t buffer, uint32_t) { ++users.first[buffer + 1]; });
    for (size_t i = 1; i < users.first.size(); ++i) users.first[i] += users.first[i - 1];
    users.nodes.resize(users.first.back());
    std::vector<uint32_t> fill(users.first.begin(), users.first.end() - 1);
    each([&](uint32_t buffer, uint32_t node) { users.nodes[fill[buffer]++] = node; });
    return users;
}

/// Projects the global order onto one rank.
class Projection {
public:
    Projection(const Dataflow& flow, const std::vector<Place>& places, const Users& users, int rank)
        : flow_(flow), places_(places), users_(users) {
        program_.rank = rank;
        program_.passes = flow.passes[static_cast<size_t>(rank)];
        program_.groups = flow.groups;
        program_.reductions = flow.reductions;
    }

    /// `parts`: this rank's parts with their nodes, in global order. `buffers`: this rank's
    /// buffers.
    Program project(const std::vector<std::pair<uint32_t, uint32_t>>& parts,
                    const std::vector<uint32_t>& buffers, std::vector<uint32_t>& action_of_node,
                    std::vector<uint32_t>& index_of_buffer) {
        for (uint32_t i = 0; i < buffers.size(); ++i) index_of_buffer[buffers[i]] = i;
        for (const auto& [node, part_index] : parts) {
            const Part& part = flow_.parts[part_index];
            action_of_node[node] = static_cast<uint32_t>(program_.actions.size());
            Action action;
            action.what = part.what;
            action.lane = flow_.nodes[node].lane;
            action.operand_count = part.operand_count;
            action.reduction = part.reduction;
            action.overwrites = part.overwrites;
            action.group = part.group;
            action.item = part.item;
            action.order = places_[node].order;
            action.first_operand = static_cast<uint32_t>(program_.operands.size());
            for (uint8_t i = 0; i < part.operand_count; ++i) {
                program_.operands.push_back(
                    part.operands[i] == kNoBuffer ? kNoBuffer : index_of_buffer[part.operands[i]]);
            }
            program_.actions.push_back(action);
        }
        place_buffers(buffers, action_of_node);
        return std::move(program_);
    }

private:
    void place_buffers(const std::vector<uint32_t>& buffers,
                       const std::vector<uint32_t>& action_of_node) {
        std::vector<lowering::Lifetime> lifetimes;
        std::vector<uint32_t> planned;  // index among this rank's buffers
        for (uint32_t i = 0; i < buffers.size(); ++i) {
            const lowering::PlannedBuffer& from = flow_.buffers[buffers[i]];
            Buffer buffer;
            buffer.bytes = static_cast<uint64_t>(from.bytes);
            buffer.space = from.space;
            buffer.purpose = from.purpose;
            lowering::Lifetime life;
            life.bytes = buffer.bytes;
            bool first = true;
            for (const uint32_t node : users(buffers[i])) {
                const Place& place = places_[node];
                const uint32_t action = action_of_node[node];
                if (first || place.order < life.born_order) {
                    life.born_order = place.order;
                    life.born_ns = place.start_ns;
                    buffer.born = action;
                }
                if (first || place.order > life.last_order) {
                    life.last_order = place.order;
                    buffer.dies = action;
                }
                life.dies_ns = first ? place.end_ns : std::max(life.dies_ns, place.end_ns);
                first = false;
            }
            program_.buffers.push_back(buffer);
            if (buffer.space == Buffer::Space::arena) {
                lifetimes.push_back(life);
                planned.push_back(i);
            }
        }
        const lowering::MemoryPlan plan = lowering::plan_memory(lifetimes);
        program_.arena_bytes = plan.arena_bytes;
        program_.live_peak_bytes = plan.live_peak_bytes;
        program_.peak_by_purpose.assign(kPurposes, 0);
        for (size_t i = 0; i < planned.size(); ++i) {
            Buffer& buffer = program_.buffers[planned[i]];
            buffer.offset = lifetimes[i].offset;
            const lowering::Lifetime& peak = lifetimes[plan.peak_at];
            if (lifetimes[i].born_order <= peak.born_order &&
                (lifetimes[i].dies_ns > peak.born_ns ||
                 lifetimes[i].last_order >= peak.born_order)) {
                program_.peak_by_purpose[static_cast<size_t>(buffer.purpose)] += buffer.bytes;
            }
        }
        for (const auto& [earlier, later] : plan.reuses) {
            const uint32_t writer = program_.buffers[planned[later]].born;
            for (const uint32_t node : users(buffers[planned[earlier]])) {
                const uint32_t user = action_of_node[node];
                const bool in_order = program_.actions[user].lane == Lane::compute &&
                                      program_.actions[writer].lane == Lane::compute;
                if (!in_order) program_.edges.push_back({user, writer});
            }
        }
    }

    [[nodiscard]] std::span<const uint32_t> users(uint32_t buffer) const {
        return {users_.nodes.data() + users_.first[buffer],
                users_.first[buffer + 1] - users_.first[buffer]};
    }

    const Dataflow& flow_;
    const std::vector<Place>& places_;
    const Users& users_;
    Program program_;
};

void hash_into(Hash& hash, const Program& program) {
    hash.add(static_cast<int>(program.pairs));
    for (const Action& a : program.actions) {
        hash.add(static_cast<int>(a.what) | static_cast<int>(a.lane) << 8 | a.reduction << 16 |
                 static_cast<int>(a.overwrites) << 24);
        hash.add(static_cast<uint64_t>(a.group) << 32 | a.item);
        hash.add(a.order);
    }
    for (const Pass& pass : program.passes) {
        hash.add(static_cast<uint64_t>(pass.op) << 48 | static_cast<uint64_t>(pass.stage) << 32 |
                 pass.microbatch);
    }
    for (const Buffer& buffer : program.buffers) {
        hash.add(buffer.bytes);
        hash.add(buffer.offset);
    }
    for (const uint32_t operand : program.operands) hash.add(operand);
    for (const Edge& edge : program.edges) {
        hash.add(static_cast<uint64_t>(edge.before) << 32 | edge.after);
    }
}

/// The members of a pair that is lowered as one need their memory at the same time.
void join_pairs(const Dataflow& flow, std::vector<Place>& places) {
    for (uint32_t node = 0; node + 1 < flow.nodes.size(); ++node) {
        const Part& part = flow.parts[flow.nodes[node].first_part];
        if (part.what != Do::pass || !flow.passes[part.rank][part.item].with_next) continue;
        places[node].end_ns = places[node + 1].end_ns;
        places[node + 1].start_ns = places[node].start_ns;
    }
}

}  // namespace

std::vector<Program> lower(const Schedule& schedule, const StepSizes& sizes, const CostModel& costs,
                           const LowerOptions& options) {
    validate(schedule);
    check_sizes(schedule, sizes);
    const Dataflow flow = lowering::build_dataflow(schedule, sizes, costs, options);
    std::vector<Place> places = lowering::order_globally(flow);
    if (options.pairs != Pairs::apart) join_pairs(flow, places);
    const Users users = users_of_buffers(flow);

    const auto ranks = static_cast<size_t>(schedule.ranks);
    std::vector<uint32_t> by_order(flow.nodes.size());
    for (uint32_t node = 0; node < flow.nodes.size(); ++node) by_order[places[node].order] = node;
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> parts(ranks);
    for (const uint32_t node : by_order) {
        const Node& n = flow.nodes[node];
        for (uint32_t p = n.first_part; p < n.first_part + n.part_count; ++p) {
            parts[flow.parts[p].rank].emplace_back(node, p);
        }
    }
    std::vector<std::vector<uint32_t>> buffers(ranks);
    for (uint32_t b = 0; b < flow.buffers.size(); ++b) buffers[flow.buffers[b].rank].push_back(b);

    // Data edges whose ends are both seen by a rank; the compute lane keeps its own order.
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> edges(ranks);
    const auto parts_of = [&](uint32_t node) {
        return std::span<const Part>(flow.parts.data() + flow.nodes[node].first_part,
                                     flow.nodes[node].part_count);
    };
    for (const auto& [before, after] : flow.edges) {
        if (flow.nodes[before].lane == Lane::compute && flow.nodes[after].lane == Lane::compute) {
            continue;
        }
        for (const Part& a : parts_of(before)) {
            for (const Part& b : parts_of(after)) {
                if (a.rank == b.rank) edges[a.rank].emplace_back(before, after);
            }
        }
    }

    std::vector<Program> programs;
    std::vector<uint32_t> action_of_node(flow.nodes.size(), 0);
    std::vector<uint32_t> index_of_buffer(flow.buffers.size(), 0);
    Hash hash;
    for (size_t rank = 0; rank < ranks; ++rank) {
        Program program = Projection(flow, places, users, static_cast<int>(rank))
                              .project(parts[rank], buffers[rank], action_of_node, index_of_buffer);
        for (const auto& [before, after] : edges[rank]) {
            program.edges.push_back({action_of_node[before], action_of_node[after]});
        }
        program.ranks = schedule.ranks;
        program.microbatches = schedule.microbatches;
        program.pairs = options.pairs;
        hash_into(hash, program);
        programs.push_back(std::move(program));
    }
    for (Program& program : programs) program.hash = hash.value();
    if (const std::optional<std::string> stuck = find_deadlock(programs)) {
        throw UsageError("lowering produced a program that can deadlock: " + *stuck);
    }
    return programs;
}

}  // namespace vocabpipe
