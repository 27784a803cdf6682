// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/lower.hpp"

#include "src/schedule/lower/dataflow.hpp"
#include "src/schedule/lower/memory_plan.hpp"
#include "src/schedule/lower/ordering.hpp"
#include "src/schedule/lower/replicate.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/validate.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

using lowering::Dataflow;
using lowering::Node;
using lowering::Part;
using lowering::Place;

/// Mixes the numbers that make up a program, in order (multiply and shift, 64 bits at a time).
class Hash {
public:
    template <typename T>
    void add(T value) {
        state_ = (state_ ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15ULL;
        state_ ^= state_ >> 32;
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
    if (sizes.replicas == 1) return;
    expect(sizes.replicas > 1 && sizes.buckets.size() == static_cast<size_t>(schedule.ranks),
           "replicas need gradient buckets of every rank");
    for (const std::vector<GradientBucket>& of_rank : sizes.buckets) {
        for (const GradientBucket& bucket : of_rank) {
            expect(bucket.first.size() == static_cast<size_t>(sizes.replicas) + 1 &&
                       bucket.first.front() == 0 &&
                       std::is_sorted(bucket.first.begin(), bucket.first.end()),
                   "a gradient bucket needs a part for each of " + std::to_string(sizes.replicas) +
                       " replicas, in order");
        }
    }
}

/// Projects the global order onto the ranks, one action for every part.
class Projection {
public:
    Projection(const Dataflow& flow, const std::vector<Place>& places)
        : flow_(flow), places_(places), action_of_part_(flow.parts.size()) {}

    std::vector<Program> project() {
        const size_t ranks = flow_.passes.size();
        programs_.resize(ranks);
        node_of_action_.resize(ranks);
        for (size_t rank = 0; rank < ranks; ++rank) {
            Program& program = programs_[rank];
            program.rank = static_cast<int>(rank);
            program.passes = flow_.passes[rank];
            program.groups = flow_.groups;
            program.reductions = flow_.reductions;
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
        for (const lowering::PlannedBuffer& buffer : flow_.buffers) ++buffers[buffer.rank];
        for (size_t rank = 0; rank < programs_.size(); ++rank) {
            programs_[rank].actions.reserve(actions[rank]);
            programs_[rank].operands.reserve(operands[rank]);
            programs_[rank].buffers.reserve(buffers[rank]);
            node_of_action_[rank].reserve(actions[rank]);
        }
    }

    void add_buffers() {
        index_of_buffer_.reserve(flow_.buffers.size());
        for (const lowering::PlannedBuffer& planned : flow_.buffers) {
            std::vector<Buffer>& buffers = programs_[planned.rank].buffers;
            index_of_buffer_.push_back(static_cast<uint32_t>(buffers.size()));
            Buffer buffer;
            buffer.bytes = static_cast<uint64_t>(planned.bytes);
            buffer.space = planned.space;
            buffer.purpose = planned.purpose;
            buffer.bucket = planned.bucket;
            buffers.push_back(buffer);
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
                action.overwrites = part.overwrites;
                action.reduction = part.reduction;
                action.group = part.group;
                action.item = part.item;
                action.order = places_[node].order;
                action.first_operand = static_cast<uint32_t>(program.operands.size());
                for (uint8_t i = 0; i < part.operand_count; ++i) {
                    const uint32_t operand = part.operands[i];
                    program.operands.push_back(operand == kNoBuffer ? kNoBuffer
                                                                    : index_of_buffer_[operand]);
                }
                program.actions.push_back(action);
            }
        }
    }

    // --- memory ----------------------------------------------------------------------------------

    /// Which actions of a rank use a buffer, in order.
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

    void plan(size_t rank) {
        Program& program = programs_[rank];
        const Users users(program);
        const auto place = [&](uint32_t action) -> const Place& {
            return places_[node_of_action_[rank][action]];
        };
        std::vector<lowering::Lifetime> lifetimes;
        std::vector<uint32_t> planned;  // buffer of a lifetime
        lifetimes.reserve(program.buffers.size());
        planned.reserve(program.buffers.size());
        for (uint32_t b = 0; b < program.buffers.size(); ++b) {
            Buffer& buffer = program.buffers[b];
            const std::span<const uint32_t> of_buffer = users.of(b);
            buffer.born = of_buffer.front();
            buffer.dies = of_buffer.back();
            if (buffer.space != Buffer::Space::arena) continue;
            lowering::Lifetime life;
            life.bytes = buffer.bytes;
            life.born_ns = place(buffer.born).start_ns;
            life.born_order = place(buffer.born).order;
            life.last_order = place(buffer.dies).order;
            life.dies_ns = place(buffer.dies).end_ns;
            for (const uint32_t user : of_buffer) {
                life.dies_ns = std::max(life.dies_ns, place(user).end_ns);
            }
            lifetimes.push_back(life);
            planned.push_back(b);
        }
        const lowering::MemoryPlan plan = lowering::plan_memory(lifetimes);
        program.arena_bytes = plan.arena_bytes;
        program.live_peak_bytes = plan.live_peak_bytes;
        program.peak_by_purpose.assign(kPurposes, 0);
        for (size_t i = 0; i < planned.size(); ++i) {
            Buffer& buffer = program.buffers[planned[i]];
            buffer.offset = lifetimes[i].offset;
            const lowering::Lifetime& peak = lifetimes[plan.peak_at];
            if (lifetimes[i].born_order <= peak.born_order &&
                (lifetimes[i].dies_ns > peak.born_ns ||
                 lifetimes[i].last_order >= peak.born_order)) {
                program.peak_by_purpose[static_cast<size_t>(buffer.purpose)] += buffer.bytes;
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

    /// Edges whose ends are both seen by a rank; the compute lane keeps its own order.
    void add_data_edges() {
        for (const auto& [before, after] : flow_.edges) {
            const Node& a = flow_.nodes[before];
            const Node& b = flow_.nodes[after];
            if (a.lane == Lane::compute && b.lane == Lane::compute) continue;
            if (a.part_count <= b.part_count) {
                for (uint32_t p = a.first_part; p < a.first_part + a.part_count; ++p) {
                    add_edge(p, part_on(b, flow_.parts[p].rank));
                }
            } else {
                for (uint32_t p = b.first_part; p < b.first_part + b.part_count; ++p) {
                    add_edge(part_on(a, flow_.parts[p].rank), p);
                }
            }
        }
    }

    static constexpr uint32_t kNoPart = UINT32_MAX;

    /// Each rank has at most one part in a node. Groups of all ranks are the rule.
    [[nodiscard]] uint32_t part_on(const Node& node, uint16_t rank) const {
        if (rank < node.part_count && flow_.parts[node.first_part + rank].rank == rank) {
            return node.first_part + rank;
        }
        for (uint32_t p = node.first_part; p < node.first_part + node.part_count; ++p) {
            if (flow_.parts[p].rank == rank) return p;
        }
        return kNoPart;
    }

    void add_edge(uint32_t before, uint32_t after) {
        if (before == kNoPart || after == kNoPart) return;
        programs_[flow_.parts[before].rank].edges.push_back(
            {action_of_part_[before], action_of_part_[after]});
    }

    const Dataflow& flow_;
    const std::vector<Place>& places_;
    std::vector<Program> programs_;
    std::vector<uint32_t> action_of_part_;  ///< index in its rank's program
    std::vector<uint32_t> index_of_buffer_;
    std::vector<std::vector<uint32_t>> node_of_action_;  ///< [rank][action]
};

void hash_into(Hash& hash, const Program& program) {
    hash.add(static_cast<int>(program.pairs));
    for (const Action& a : program.actions) {
        hash.add(static_cast<int>(a.what) | static_cast<int>(a.lane) << 8 |
                 static_cast<int>(a.overwrites) << 12 | a.reduction << 16);
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
        hash.add(static_cast<uint64_t>(buffer.space) << 16 | buffer.bucket);
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
    std::vector<Place> places = lowering::order_globally(flow, costs.communication_order());
    if (options.pairs != Pairs::apart) join_pairs(flow, places);
    std::vector<Program> programs = Projection(flow, places).project();
    const Mesh mesh{schedule.ranks, sizes.replicas};
    if (mesh.data > 1) programs = lowering::replicate(programs, flow, mesh);
    Hash hash;
    for (Program& program : programs) {
        program.ranks = mesh.size();
        program.microbatches = schedule.microbatches;
        program.pairs = options.pairs;
        hash_into(hash, program);
    }
    for (Program& program : programs) program.hash = hash.value();
    if (const std::optional<std::string> stuck = find_deadlock(programs)) {
        throw UsageError("lowering produced a program that can deadlock: " + *stuck);
    }
    return programs;
}

}  // namespace vocabpipe
