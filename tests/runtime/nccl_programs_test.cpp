// SPDX-License-Identifier: Apache-2.0
// Every family's programs through the NCCL transport, without kernels: a pass writes a pattern into
// what it makes and reads what it uses, on the streams and with the events of the program's lanes
// and edges. The stand-in NCCL ends the process where a rule of NCCL is broken.
#include "tests/runtime/nccl_end.hpp"
#include "tests/schedule/program_tools.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
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

/// Byte offsets of the members' row blocks. A root that owns no shard has an empty one.
std::vector<int64_t> block_begins(const Program& program, const Action& action) {
    const Reduction& r = program.reductions[action.reduction];
    const Group& group = program.groups[action.group];
    const int64_t size = size_of(action.what == Do::all_to_all ? r.partial : r.result);
    const size_t owners = r.first_row.size() - 1;
    std::vector<int64_t> begins{0};
    size_t owner = 0;
    for (const int rank : group.ranks) {
        if ((group.ranks.size() == owners || rank != group.root) && owner < owners) ++owner;
        begins.push_back(r.first_row[owner] * r.cols * size);
    }
    return begins;
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
    /// Of an action that computes: per operand what it must find; empty where it writes first.
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

    void act(const std::vector<std::pair<size_t, uint32_t>>& parts) {
        const auto [rank, index] = parts.front();
        const Program& program = programs_[rank];
        const Action& action = program.actions[index];
        if (!has_participants(action)) {
            const auto operands = program.operands_of(action);
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
            return;
        }
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
            case Do::gather:
                for (const int member : group.ranks) everything(member);
                content(part_of(group.root), 1) = all;
                break;
            default: {  // all_to_all
                const std::vector<int64_t> begin = block_begins(program, action);
                for (size_t m = 0; m < group.ranks.size(); ++m) {
                    all.clear();
                    for (const int from : group.ranks) {
                        append(content(part_of(from), 0), begin[m], begin[m + 1]);
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

/// One rank's walk through its program.
class Walk {
public:
    Walk(End& end, const Program& program, const Expectation& expectation)
        : end_(end),
          program_(program),
          expectation_(expectation),
          arena_(program.arena_bytes),
          found_(program.actions.size()),
          made_(program.actions.size()) {
        for (cuda::Stream& stream : own_) stream = cuda::make_stream(0);
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
            for (uint32_t i = 0; i < program_.actions.size(); ++i) {
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
        std::vector<int64_t> begin;
        if (action.what == Do::all_to_all || action.what == Do::gather) {
            begin = block_begins(program_, action);
        }
        Transfer t{.what = action.what,
                   .channel = action.lane == Lane::forward    ? Channel::forward
                              : action.lane == Lane::backward ? Channel::backward
                                                              : Channel::collective,
                   .ranks = group.ranks,
                   .root = group.root,
                   .block_begin = begin};
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
};

class NcclPrograms : public ::testing::TestWithParam<Kind> {};

TEST_P(NcclPrograms, BringEveryPassWhatItNeedsWithoutBreakingARule) {
    cuda_stand_in::set_device_count(4);
    for (const int ranks : {1, 2, 3, 4}) {
        // More microbatches than ranks, fewer, and a vocabulary that leaves a rank without rows.
        for (const auto& [microbatches, vocab_size] : {std::pair{ranks + 2, 53}, std::pair{1, 2}}) {
            const Schedule schedule = generated(GetParam(), ranks, microbatches, vocab_size);
            StepSizes sizes = sizes_for(schedule, /*tokens=*/7, /*hidden=*/2);
            sizes.tied = true;
            sizes.report_bytes = 24;
            // Half of them with receives that are posted long before their messages are sent.
            const std::vector<Program> programs =
                lower(schedule, sizes, uneven_costs(schedule),
                      {.receive_ahead = microbatches % 2 == 0 ? kAsSoonAsSent : 1});
            const Expectation expectation(programs);
            World::threads(ranks, {.timeout_seconds = 20}).run([&](Communicator& c) {
                End end(c);
                end.transport->prepare(programs);
                Walk walk(end, programs[static_cast<size_t>(c.rank())], expectation);
                walk.run();
                EXPECT_EQ(walk.fault(), "") << "p=" << ranks << " m=" << microbatches;
            });
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, NcclPrograms, ::testing::ValuesIn(every_kind(/*with_evaluation=*/true)),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::testing
