// SPDX-License-Identifier: Apache-2.0
// Every family's programs through the NCCL transport, without kernels: a pass writes a pattern into
// what it makes and reads what it uses, on the streams and with the events of the program's lanes
// and edges. The stand-in NCCL ends the process where a rule of NCCL is broken.
#include "src/runtime/loaded_program.hpp"
#include "src/runtime/tile_link/streams.hpp"
#include "src/schedule/ops.hpp"
#include "tests/runtime/nccl_end.hpp"
#include "tests/schedule/program_tools.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// Bytes that no other action, operand or rank writes.
HostBytes pattern(int rank, uint32_t action, size_t operand, size_t size) {
    uint64_t state = (static_cast<uint64_t>(rank) << 48 | uint64_t{action} << 8 | operand) *
                         0x9e3779b97f4a7c15u +
                     1;
    HostBytes bytes(size);
    for (std::byte& byte : bytes) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        byte = static_cast<std::byte>(state >> 56);
    }
    return bytes;
}

/// Bytes where each member's row block begins and ends. A root that owns no shard has an empty one.
struct Blocks {
    std::vector<int64_t> begin, end;
};

Blocks blocks_of(const Program& program, const Action& action) {
    const Reduction& r = program.reductions[action.reduction];
    const Group& group = program.groups[action.group];
    const int64_t size = r.cols * size_of(action.what == Do::all_to_all ? r.partial : r.result);
    const size_t owners = r.first_row.size() - (r.last_row.empty() ? 1 : 0);
    Blocks blocks;
    size_t owner = 0;
    for (const int rank : group.ranks) {
        const bool owns = (group.ranks.size() == owners || rank != group.root) && owner < owners;
        const int64_t end = owns         ? r.end(static_cast<int>(owner))
                            : owner == 0 ? 0
                                         : r.end(static_cast<int>(owner) - 1);
        blocks.begin.push_back(size * (owns ? r.first_row[owner] : end));
        blocks.end.push_back(size * end);
        if (owns) ++owner;
    }
    return blocks;
}

/// What every buffer holds at every use, found by walking all programs in their global order.
class Expectation {
public:
    explicit Expectation(const std::vector<Program>& programs) : programs_(programs) {
        std::vector<std::pair<size_t, uint32_t>> all;  // rank, action
        for (size_t rank = 0; rank < programs.size(); ++rank) {
            const Program& program = programs[rank];
            used_.emplace_back(program.actions.size());
            content_.emplace_back();
            for (uint32_t b = 0; b < program.buffers.size(); ++b) {
                const Buffer& buffer = program.buffers[b];
                const bool lasting = buffer.space != Buffer::Space::arena;
                content_.back().push_back(lasting ? lasting_content(program.rank, b, buffer.bytes)
                                                  : HostBytes(buffer.bytes));
            }
            for (uint32_t i = 0; i < program.actions.size(); ++i) all.emplace_back(rank, i);
        }
        const auto order = [&](const auto& one) {
            return programs[one.first].actions[one.second].order;
        };
        std::stable_sort(all.begin(), all.end(),
                         [&](const auto& a, const auto& b) { return order(a) < order(b); });
        for (size_t begin = 0; begin < all.size();) {
            size_t end = begin;
            while (end < all.size() && order(all[end]) == order(all[begin])) ++end;
            act({all.begin() + static_cast<std::ptrdiff_t>(begin),
                 all.begin() + static_cast<std::ptrdiff_t>(end)});
            begin = end;
        }
    }
    /// Per operand of an action that computes what it must find; empty where it writes first.
    [[nodiscard]] const std::vector<HostBytes>& used(int rank, uint32_t action) const {
        return used_[static_cast<size_t>(rank)][action];
    }
    /// Gradients outlive the step: nothing of the program writes them first.
    [[nodiscard]] static HostBytes lasting_content(int rank, uint32_t buffer, size_t size) {
        return pattern(rank, buffer, 255, size);
    }

private:
    HostBytes& content(const std::pair<size_t, uint32_t>& one, size_t operand) {
        const Program& program = programs_[one.first];
        const uint32_t buffer = program.operands_of(program.actions[one.second])[operand];
        return buffer == kNoBuffer ? nothing_ : content_[one.first][buffer];
    }

    /// A pass or a local action.
    void compute(size_t rank, uint32_t index) {
        const Program& program = programs_[rank];
        const auto operands = program.operands_of(program.actions[index]);
        for (size_t o = 0; o < operands.size(); ++o) {
            if (operands[o] == kNoBuffer) {
                used_[rank][index].emplace_back();
                continue;
            }
            const Buffer& buffer = program.buffers[operands[o]];
            if (buffer.space == Buffer::Space::arena && buffer.born == index) {
                used_[rank][index].emplace_back();
                content_[rank][operands[o]] =
                    pattern(program.rank, index, o, content_[rank][operands[o]].size());
            } else {
                used_[rank][index].push_back(content_[rank][operands[o]]);
            }
        }
    }

    void act(const std::vector<std::pair<size_t, uint32_t>>& parts) {
        const auto [first_rank, first_index] = parts.front();
        if (!has_participants(programs_[first_rank].actions[first_index])) {
            for (const auto& [rank, index] : parts) compute(rank, index);
            return;
        }
        const Program& program = programs_[first_rank];
        const Action& action = program.actions[first_index];
        const Group& group = program.groups[action.group];
        const auto part_of = [&](int member) {
            return *std::find_if(parts.begin(), parts.end(), [&](const auto& part) {
                return programs_[part.first].rank == member;
            });
        };
        HostBytes all;
        const auto append = [&](const HostBytes& bytes, int64_t from, int64_t to) {
            all.insert(all.end(), bytes.begin() + from, bytes.begin() + to);
        };
        const auto everything = [&](int member) {
            const HostBytes& bytes = content(part_of(member), 0);
            append(bytes, 0, static_cast<int64_t>(bytes.size()));
        };
        switch (action.what) {
            case Do::send:
            case Do::receive:
                content(part_of(group.ranks[1]), 0) = content(part_of(group.ranks[0]), 0);
                break;
            case Do::broadcast:
                everything(group.root);
                for (const auto& part : parts) content(part, 0) = all;
                break;
            case Do::all_gather:
                for (const int member : group.ranks) everything(member);
                for (const auto& part : parts) content(part, 1) = all;
                break;
            case Do::gather: {
                const Blocks blocks = blocks_of(program, action);
                HostBytes& whole = content(part_of(group.root), 1);
                for (size_t m = 0; m < group.ranks.size(); ++m) {
                    const HostBytes& bytes = content(part_of(group.ranks[m]), 0);
                    std::copy(bytes.begin(), bytes.end(), whole.begin() + blocks.begin[m]);
                }
                break;
            }
            default: {  // all_to_all
                const Blocks blocks = blocks_of(program, action);
                for (size_t m = 0; m < group.ranks.size(); ++m) {
                    all.clear();
                    for (const int from : group.ranks) {
                        append(content(part_of(from), 0), blocks.begin[m], blocks.end[m]);
                    }
                    content(part_of(group.ranks[m]), 1) = all;
                }
            }
        }
    }

    const std::vector<Program>& programs_;
    HostBytes nothing_;                                      ///< the block of a member without rows
    std::vector<std::vector<HostBytes>> content_;            ///< [rank][buffer] now
    std::vector<std::vector<std::vector<HostBytes>>> used_;  ///< [rank][action][operand]
};

/// What the ranks of a stage exchange within a pass: other bytes for every member and pass.
class TeamLink {
public:
    struct Parts {
        std::vector<HostBytes> sent, received;  ///< by member
    };

    TeamLink(End& end, cudaStream_t pass, std::vector<int> team)
        : pass_(pass),
          team_(std::move(team)),
          link_(make_stream_tile_link(*end.transport, end.control.wait_options(), pass,
                                      {.ranks = team_, .poll = {}})) {
        for (size_t m = 0; m < team_.size(); ++m) {
            out_.push_back(std::make_unique<DeviceBytes>(kEnds.back()));
            in_.push_back(std::make_unique<DeviceBytes>(kEnds.back()));
        }
    }

    /// Enqueues it. What has been received is there once the pass's stream has run.
    [[nodiscard]] std::unique_ptr<Parts> exchange(int rank, uint32_t action) {
        auto parts = std::make_unique<Parts>();
        parts->sent.resize(team_.size());
        parts->received.assign(team_.size(), HostBytes(kEnds.back()));
        std::vector<TileLink::Outgoing> send(team_.size());
        std::vector<TileLink::Incoming> receive(team_.size());
        for (size_t m = 0; m < team_.size(); ++m) {
            if (team_[m] == rank) continue;
            send[m] = {.bytes = out_[m]->span(), .ends = kEnds};
            receive[m] = {.bytes = in_[m]->span(), .ends = kEnds};
        }
        TileLink::Operation operation = link_->all_to_all(send, receive, {.what = "a test"});
        for (int i = 1; i < link_->size(); ++i) {
            const auto to = static_cast<size_t>(link_->to(i));
            parts->sent[to] = bytes_for(rank, team_[to], action);
            copy(out_[to]->span().data(), parts->sent[to].data());
            for (int piece = 1; std::cmp_less_equal(piece, kEnds.size()); ++piece) {
                operation.release(link_->to(i), piece);
            }
        }
        for (int i = 1; i < link_->size(); ++i) {
            const auto from = static_cast<size_t>(link_->from(i));
            operation.wait(link_->from(i), static_cast<int>(kEnds.size()));
            copy(parts->received[from].data(), in_[from]->span().data());
        }
        operation.finish();
        return parts;
    }
    [[nodiscard]] bool is_right(const Parts& parts, int rank, uint32_t action) const {
        for (size_t m = 0; m < team_.size(); ++m) {
            if (team_[m] == rank) continue;
            if (parts.received[m] != bytes_for(team_[m], rank, action)) return false;
        }
        return true;
    }

private:
    static constexpr std::array<int64_t, 3> kEnds{40, 64, 120};

    /// Members have the same actions in the same order.
    static HostBytes bytes_for(int from, int to, uint32_t action) {
        return pattern(from, action, 128 + static_cast<size_t>(to), kEnds.back());
    }
    void copy(void* to, const void* from) const {
        cuda::check(cudaMemcpyAsync(to, from, kEnds.back(), cudaMemcpyDefault, pass_),
                    "cudaMemcpyAsync");
    }

    cudaStream_t pass_;
    std::vector<int> team_;
    std::unique_ptr<TileLink> link_;
    std::vector<std::unique_ptr<DeviceBytes>> out_, in_;  ///< by member
};

/// One rank's walk through its program, in the order in which the executor enqueues it. Passes of a
/// stage that `team` shares exchange pieces over a tile link.
class Walk {
public:
    Walk(End& end, const Program& program, const Expectation& expectation, std::vector<int> team)
        : end_(end),
          program_(program),
          expectation_(expectation),
          arena_(program.arena_bytes),
          found_(program.actions.size()),
          made_(program.actions.size()),
          arrived_(program.actions.size()) {
        for (cuda::Stream& stream : own_) stream = cuda::make_stream(0);
        if (team.size() > 1) link_.emplace(end, own_[0].get(), std::move(team));
        for (size_t i = 0; i < program.actions.size(); ++i) {
            done_.push_back(cuda::make_event(cuda::Timing::no));
        }
        for (uint32_t b = 0; b < program.buffers.size(); ++b) {
            const Buffer& buffer = program.buffers[b];
            lasting_.push_back(buffer.space == Buffer::Space::arena
                                   ? nullptr
                                   : std::make_unique<DeviceBytes>(Expectation::lasting_content(
                                         program.rank, b, buffer.bytes)));
        }
        before_.resize(program.actions.size());
        for (const Edge& edge : program.edges) before_[edge.after].push_back(edge.before);
    }

    void run() {
        try {
            for (const uint32_t i : enqueue_order(program_)) {
                const Action& action = program_.actions[i];
                const cudaStream_t stream = stream_of(action.lane);
                for (const uint32_t before : before_[i]) {
                    if (program_.actions[before].lane == action.lane) continue;
                    cuda::check(cudaStreamWaitEvent(stream, done_[before].get(), 0), "wait");
                }
                if (has_participants(action)) {
                    communicate(action);
                } else {
                    compute(i, stream);
                    if (link_ && action.what == Do::pass &&
                        traits(program_.passes[action.item].op).has_stage) {
                        arrived_[i] = link_->exchange(program_.rank, i);
                    }
                }
                cuda::check(cudaEventRecord(done_[i].get(), stream), "cudaEventRecord");
            }
            end_.finish();
            for (const cuda::Stream& stream : own_) cudaStreamSynchronize(stream.get());
        } catch (const std::exception&) {
            end_.transport->cancel();
            for (const Lane lane :
                 {Lane::compute, Lane::forward, Lane::backward, Lane::collective, Lane::local}) {
                cudaStreamSynchronize(stream_of(lane));
            }
            throw;
        }
    }

    /// Which action found something else than it must; empty: none.
    [[nodiscard]] std::string fault() const {
        for (uint32_t i = 0; i < program_.actions.size(); ++i) {
            const auto& wanted = expectation_.used(program_.rank, i);
            for (size_t o = 0; o < found_[i].size(); ++o) {
                if (found_[i][o] == wanted[o]) continue;
                return "rank " + std::to_string(program_.rank) + " " +
                       program_.name_of(program_.actions[i]) + " operand " + std::to_string(o);
            }
            if (link_ && arrived_[i] && !link_->is_right(*arrived_[i], program_.rank, i)) {
                return "rank " + std::to_string(program_.rank) + " exchange of " +
                       program_.name_of(program_.actions[i]);
            }
        }
        return "";
    }

private:
    [[nodiscard]] cudaStream_t stream_of(Lane lane) const {
        switch (lane) {
            case Lane::forward:
                return end_.streams.forward;
            case Lane::backward:
                return end_.streams.backward;
            case Lane::collective:
                return end_.streams.collective;
            case Lane::local:
                return own_[1].get();
            default:
                return own_[0].get();
        }
    }
    [[nodiscard]] std::span<std::byte> bytes_of(uint32_t buffer) const {
        const Buffer& b = program_.buffers[buffer];
        return lasting_[buffer] ? lasting_[buffer]->span()
                                : arena_.span().subspan(b.offset, b.bytes);
    }

    void compute(uint32_t index, cudaStream_t stream) {
        const auto operands = program_.operands_of(program_.actions[index]);
        found_[index].resize(operands.size());
        made_[index].resize(operands.size());
        for (size_t o = 0; o < operands.size(); ++o) {
            if (operands[o] == kNoBuffer) continue;
            const Buffer& buffer = program_.buffers[operands[o]];
            const std::span<std::byte> bytes = bytes_of(operands[o]);
            if (bytes.empty()) continue;
            const bool makes = buffer.space == Buffer::Space::arena && buffer.born == index;
            if (makes) {
                made_[index][o] = pattern(program_.rank, index, o, bytes.size());
                cuda::check(cudaMemcpyAsync(bytes.data(), made_[index][o].data(), bytes.size(),
                                            cudaMemcpyHostToDevice, stream),
                            "cudaMemcpyAsync");
            } else {
                found_[index][o].resize(bytes.size());
                cuda::check(cudaMemcpyAsync(found_[index][o].data(), bytes.data(), bytes.size(),
                                            cudaMemcpyDeviceToHost, stream),
                            "cudaMemcpyAsync");
            }
        }
    }

    void communicate(const Action& action) {
        const auto operands = program_.operands_of(action);
        const Group& group = program_.groups[action.group];
        const auto bytes = [&](size_t operand) {
            return operands[operand] == kNoBuffer ? std::span<std::byte>()
                                                  : bytes_of(operands[operand]);
        };
        Blocks blocks;
        if (action.what == Do::all_to_all || action.what == Do::gather) {
            blocks = blocks_of(program_, action);
        }
        Transfer t{.what = action.what,
                   .channel = action.lane == Lane::forward    ? Channel::forward
                              : action.lane == Lane::backward ? Channel::backward
                                                              : Channel::collective,
                   .ranks = group.ranks,
                   .root = group.root,
                   .block_begin = blocks.begin,
                   .block_end = blocks.end};
        if (action.what != Do::receive) t.send = bytes(0);
        if (action.what == Do::receive || action.what == Do::broadcast) t.receive = bytes(0);
        if (operands.size() > 1) t.receive = bytes(1);
        end_.enqueue(end_.transport->start(t));
    }

    End& end_;
    const Program& program_;
    const Expectation& expectation_;
    DeviceBytes arena_;
    std::vector<std::unique_ptr<DeviceBytes>> lasting_;  ///< [buffer] null: in the arena
    std::array<cuda::Stream, 2> own_;                    ///< compute, local
    std::vector<cuda::Event> done_;                      ///< [action]
    std::vector<std::vector<uint32_t>> before_;          ///< [action]
    std::vector<std::vector<HostBytes>> found_, made_;   ///< [action][operand]
    std::optional<TeamLink> link_;
    std::vector<std::unique_ptr<TeamLink::Parts>> arrived_;  ///< [action]
};

class NcclPrograms : public ::testing::TestWithParam<Kind> {};

/// `tensor` ranks share each stage.
void walk_programs(const Kind& kind, int ranks, int tensor, int microbatches, int64_t vocab_size) {
    const Mesh mesh{.pipeline = ranks, .tensor = tensor};
    const Schedule schedule = generated(kind, ranks, microbatches, vocab_size);
    StepSizes sizes = sizes_for(schedule, /*tokens=*/tensor == 1 ? 7 : 12, /*hidden=*/2);
    sizes.tied = true;
    sizes.report_bytes = 24;
    sizes.tensor = tensor;
    if (tensor > 1) sizes.buckets.resize(static_cast<size_t>(ranks));  // nothing to add up
    TableCosts costs = uneven_costs(schedule);
    costs.slices = tensor;
    // Half of them with receives that are posted long before their messages are sent.
    const std::vector<Program> programs =
        lower(schedule, sizes, costs, {.receive_ahead = microbatches % 2 == 0 ? kAsSoonAsSent : 1});
    const Expectation expectation(programs);
    World::threads(mesh.size(), {.timeout_seconds = 20}).run([&](Communicator& c) {
        End end(c);
        end.transport->prepare(routes_of(programs));
        Walk walk(end, programs[static_cast<size_t>(c.rank())], expectation,
                  mesh.ranks_along(Axis::tensor, mesh.place(c.rank())));
        walk.run();
        EXPECT_EQ(walk.fault(), "") << "p=" << ranks << " t=" << tensor << " m=" << microbatches;
    });
}

TEST_P(NcclPrograms, BringEveryPassWhatItNeedsWithoutBreakingARule) {
    cuda_stand_in::set_device_count(4);
    for (const int ranks : {1, 2, 3, 4}) {
        // More microbatches than ranks, fewer, and a vocabulary that leaves a rank without rows.
        for (const auto& [microbatches, vocab_size] : {std::pair{ranks + 2, 53}, std::pair{1, 2}}) {
            walk_programs(GetParam(), ranks, 1, microbatches, vocab_size);
        }
    }
    walk_programs(GetParam(), 2, 2, 3, 53);
    walk_programs(GetParam(), 1, 3, 2, 53);
}

INSTANTIATE_TEST_SUITE_P(, NcclPrograms, ::testing::ValuesIn(every_kind(/*with_evaluation=*/true)),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::testing
