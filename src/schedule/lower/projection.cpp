// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/projection.hpp"

#include "src/schedule/lower/memory_plan.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace vocabpipe::lowering {

namespace {

/// Makes one action for every part.
class Projection {
public:
    Projection(const Dataflow& flow, const std::vector<Place>& places)
        : flow_(flow), places_(places), action_of_part_(flow.parts.size()) {}

    std::vector<Program> project() {
        const size_t ranks = flow_.passes.size();
        programs_.resize(ranks);
        rooms_.resize(ranks);
        node_of_action_.resize(ranks);
        for (size_t rank = 0; rank < ranks; ++rank) {
            Program& program = programs_[rank];
            program.rank = static_cast<int>(rank);
            program.passes = flow_.passes[rank];
        }
        reserve();
        add_buffers();
        add_actions();
        for (size_t rank = 0; rank < ranks; ++rank) plan(rank);
        add_data_edges();
        return std::move(programs_);
    }

private:
    void reserve() {
        std::vector<size_t> actions(programs_.size(), 0);
        std::vector<size_t> operands(programs_.size(), 0);
        std::vector<size_t> buffers(programs_.size(), 0);
        for (const Part& part : flow_.parts) {
            ++actions[part.rank];
            operands[part.rank] += part.operand_count;
        }
        for (const PlannedBuffer& buffer : flow_.buffers) ++buffers[buffer.rank];
        for (size_t rank = 0; rank < programs_.size(); ++rank) {
            programs_[rank].actions.reserve(actions[rank]);
            programs_[rank].operands.reserve(operands[rank]);
            programs_[rank].buffers.reserve(buffers[rank]);
            node_of_action_[rank].reserve(actions[rank]);
        }
    }

    void add_buffers() {
        index_of_buffer_.reserve(flow_.buffers.size());
        for (const PlannedBuffer& planned : flow_.buffers) {
            std::vector<Buffer>& buffers = programs_[planned.rank].buffers;
            index_of_buffer_.push_back(static_cast<uint32_t>(buffers.size()));
            Buffer buffer;
            buffer.bytes = static_cast<uint64_t>(planned.bytes);
            buffer.space = planned.space;
            buffer.purpose = planned.purpose;
            buffer.bucket = planned.bucket;
            buffers.push_back(buffer);
            rooms_[planned.rank].push_back(
                static_cast<uint64_t>(std::max(planned.bytes, planned.room)));
        }
    }

    void add_actions() {
        std::vector<uint32_t> by_order(flow_.nodes.size());
        for (uint32_t node = 0; node < flow_.nodes.size(); ++node) {
            by_order[places_[node].order] = node;
        }
        for (const uint32_t node : by_order) {
            const Node& n = flow_.nodes[node];
            for (uint32_t p = n.first_part; p < n.first_part + n.part_count; ++p) {
                const Part& part = flow_.parts[p];
                Program& program = programs_[part.rank];
                action_of_part_[p] = static_cast<uint32_t>(program.actions.size());
                node_of_action_[part.rank].push_back(node);
                Action action;
                action.what = part.what;
                action.lane = n.lane;
                action.operand_count = part.operand_count;
                action.accumulate = part.accumulate;
                action.reduction = part.reduction;
                action.group = part.group;
                action.pieces = part.pieces;
                action.pair_member = part.pair_member;
                action.item = part.item;
                action.order = places_[node].order;
                action.first_operand = static_cast<uint32_t>(program.operands.size());
                for (const uint32_t operand : flow_.operands_of(part)) {
                    program.operands.push_back(operand == kNoBuffer ? kNoBuffer
                                                                    : index_of_buffer_[operand]);
                }
                program.actions.push_back(action);
            }
        }
    }

    // --- memory ----------------------------------------------------------------------------------

    /// The actions of a rank that use a buffer, in order.
    struct Users {
        std::vector<uint32_t> first;  ///< [buffer] where its users begin; buffers + 1 entries
        std::vector<uint32_t> actions;

        explicit Users(const Program& program) : first(program.buffers.size() + 1, 0) {
            for (const uint32_t operand : program.operands) {
                if (operand != kNoBuffer) ++first[operand + 1];
            }
            for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
            actions.resize(first.back());
            std::vector<uint32_t> fill(first.begin(), first.end() - 1);
            for (uint32_t i = 0; i < program.actions.size(); ++i) {
                for (const uint32_t operand : program.operands_of(program.actions[i])) {
                    if (operand != kNoBuffer) actions[fill[operand]++] = i;
                }
            }
        }
        [[nodiscard]] std::span<const uint32_t> of(uint32_t buffer) const {
            return {actions.data() + first[buffer], first[buffer + 1] - first[buffer]};
        }
    };

    /// [action] The action with which it may begin: the first of an overlapped pair for the second,
    /// whose buffers are therefore there as early, and take the place of nothing that the first
    /// uses. Else itself.
    static std::vector<uint32_t> begins(const Program& program) {
        std::vector<uint32_t> begins(program.actions.size());
        uint32_t last_pass = 0;
        for (uint32_t i = 0; i < begins.size(); ++i) {
            const Action& action = program.actions[i];
            begins[i] = action.pair_member == 2 ? last_pass : i;
            if (action.what == Do::pass) last_pass = i;
        }
        return begins;
    }

    void plan(size_t rank) {
        Program& program = programs_[rank];
        const Users users(program);
        const auto place = [&](uint32_t action) -> const Place& {
            return places_[node_of_action_[rank][action]];
        };
        const std::vector<uint32_t> begin_of = begins(program);
        std::vector<Lifetime> lifetimes;
        std::vector<uint32_t> planned;  // [lifetime] its buffer
        lifetimes.reserve(program.buffers.size());
        planned.reserve(program.buffers.size());
        for (uint32_t b = 0; b < program.buffers.size(); ++b) {
            Buffer& buffer = program.buffers[b];
            const std::span<const uint32_t> of_buffer = users.of(b);
            buffer.born = of_buffer.front();
            buffer.dies = of_buffer.back();
            if (buffer.space != Buffer::Space::arena) continue;
            Lifetime life;
            life.bytes = rooms_[rank][b];
            const Place& birth = place(begin_of[buffer.born]);
            life.born_ns = birth.start_ns;
            life.born_order = birth.order;
            life.last_order = place(buffer.dies).order;
            life.dies_ns = place(buffer.dies).end_ns;
            for (const uint32_t user : of_buffer) {
                life.dies_ns = std::max(life.dies_ns, place(user).end_ns);
            }
            lifetimes.push_back(life);
            planned.push_back(b);
        }
        const MemoryPlan plan = plan_memory(lifetimes);
        program.arena_bytes = plan.arena_bytes;
        program.live_peak_bytes = plan.live_peak_bytes;
        program.peak_by_purpose.assign(kPurposes, 0);
        for (size_t i = 0; i < planned.size(); ++i) {
            Buffer& buffer = program.buffers[planned[i]];
            buffer.offset = lifetimes[i].offset;
            const Lifetime& peak = lifetimes[plan.peak_at];
            if (lifetimes[i].born_order <= peak.born_order &&
                (lifetimes[i].dies_ns > peak.born_ns ||
                 lifetimes[i].last_order >= peak.born_order)) {
                program.peak_by_purpose[static_cast<size_t>(buffer.purpose)] += lifetimes[i].bytes;
            }
        }
        for (const auto& [earlier, later] : plan.reuses) {
            const uint32_t writer = program.buffers[planned[later]].born;
            for (const uint32_t user : users.of(planned[earlier])) {
                const bool in_order = program.actions[user].lane == Lane::compute &&
                                      program.actions[writer].lane == Lane::compute;
                if (!in_order) program.edges.push_back({user, writer});
            }
        }
    }

    // --- edges -----------------------------------------------------------------------------------

    /// Adds the edges with both ends on one rank, except those within the compute lane, which has
    /// its order anyway.
    void add_data_edges() {
        for (size_t i = 0; i < flow_.edges.size(); ++i) {
            const auto& [before, after] = flow_.edges[i];
            const bool streamed = i < flow_.streamed.size() && flow_.streamed[i];
            const Node& a = flow_.nodes[before];
            const Node& b = flow_.nodes[after];
            if (a.lane == Lane::compute && b.lane == Lane::compute) continue;
            if (a.part_count <= b.part_count) {
                for (uint32_t p = a.first_part; p < a.first_part + a.part_count; ++p) {
                    add_edge(p, part_on(b, flow_.parts[p].rank), streamed);
                }
            } else {
                for (uint32_t p = b.first_part; p < b.first_part + b.part_count; ++p) {
                    add_edge(part_on(a, flow_.parts[p].rank), p, streamed);
                }
            }
        }
    }

    static constexpr uint32_t kNoPart = UINT32_MAX;

    /// The rank's part of a node, of which there is at most one. Mostly the group has all ranks.
    [[nodiscard]] uint32_t part_on(const Node& node, uint16_t rank) const {
        if (rank < node.part_count && flow_.parts[node.first_part + rank].rank == rank) {
            return node.first_part + rank;
        }
        for (uint32_t p = node.first_part; p < node.first_part + node.part_count; ++p) {
            if (flow_.parts[p].rank == rank) return p;
        }
        return kNoPart;
    }

    void add_edge(uint32_t before, uint32_t after, bool streamed) {
        if (before == kNoPart || after == kNoPart) return;
        Program& program = programs_[flow_.parts[before].rank];
        if (streamed) program.streamed.push_back(static_cast<uint32_t>(program.edges.size()));
        program.edges.push_back({action_of_part_[before], action_of_part_[after]});
    }

    const Dataflow& flow_;
    const std::vector<Place>& places_;
    std::vector<Program> programs_;
    std::vector<uint32_t> action_of_part_;  ///< index in its rank's program
    std::vector<uint32_t> index_of_buffer_;
    std::vector<std::vector<uint64_t>> rooms_;           ///< [rank][buffer] bytes in the arena
    std::vector<std::vector<uint32_t>> node_of_action_;  ///< [rank][action]
};

/// [pipeline rank] Buffers that differ from slice to slice.
std::vector<std::vector<SliceBlock>> blocks_of(const Dataflow& flow) {
    std::vector<std::vector<SliceBlock>> blocks(flow.passes.size());
    std::vector<uint32_t> next(flow.passes.size(), 0);  // buffers are in the flow's order
    for (const PlannedBuffer& planned : flow.buffers) {
        const uint32_t index = next[planned.rank]++;
        if (planned.block.copies == 0) continue;
        blocks[planned.rank].push_back({.buffer = index,
                                        .reduction = planned.block.reduction,
                                        .copies = planned.block.copies,
                                        .width = planned.block.width,
                                        .axis = planned.block.axis,
                                        .own = planned.block.own});
    }
    return blocks;
}

/// Renumbers the entries that are used, in the same order.
class UsedOnes {
public:
    explicit UsedOnes(size_t all) : used_(all, false), number_(all, 0) {}
    void use(size_t i) { used_[i] = true; }
    /// Copies of the used entries; call after the last use().
    template <typename T>
    std::vector<T> of(const std::vector<T>& all) {
        std::vector<T> kept;
        for (size_t i = 0; i < all.size(); ++i) {
            if (!used_[i]) continue;
            number_[i] = static_cast<uint16_t>(kept.size());
            kept.push_back(all[i]);
        }
        return kept;
    }
    [[nodiscard]] uint16_t number(size_t i) const { return number_[i]; }

private:
    std::vector<bool> used_;
    std::vector<uint16_t> number_;
};

}  // namespace

Lowered project(const Dataflow& flow, const std::vector<Place>& places, Mesh mesh,
                std::vector<Axis> stage_teams) {
    return {.mesh = mesh,
            .pipeline = Projection(flow, places).project(),
            .blocks = blocks_of(flow),
            .stage_teams = std::move(stage_teams)};
}

void take_own(Lowered& world, const Dataflow& flow) {
    for (size_t k = 0; k < world.pipeline.size(); ++k) {
        Program& program = world.pipeline[k];
        UsedOnes groups(flow.groups.size());
        UsedOnes reductions(flow.reductions.size());
        for (size_t named = 0; named <= kOutputConversion; ++named) reductions.use(named);
        for (const Action& action : program.actions) {
            if (action.what == Do::pass) continue;
            groups.use(action.group);
            reductions.use(action.reduction);
        }
        for (const SliceBlock& block : world.blocks[k]) {
            if (block.own != SliceBlock::kCountedFromFirst) reductions.use(block.own);
        }
        program.groups = groups.of(flow.groups);
        program.reductions = reductions.of(flow.reductions);
        for (Action& action : program.actions) {
            if (action.what == Do::pass) continue;
            action.group = groups.number(action.group);
            action.reduction = reductions.number(action.reduction);
        }
        for (SliceBlock& block : world.blocks[k]) {
            block.reduction = reductions.number(block.reduction);
            if (block.own != SliceBlock::kCountedFromFirst) {
                block.own = reductions.number(block.own);
            }
        }
    }
}

}  // namespace vocabpipe::lowering
