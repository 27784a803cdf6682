// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/message_transport.hpp"

#include "kernels/bf16.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstring>

namespace vocabpipe {

namespace {

/// MPI counts are ints; larger messages travel in pieces of this size.
constexpr size_t kLargestMessage = size_t{1} << 30;

template <typename Element>
Element element(std::span<const std::byte> bytes, size_t i) {
    Element value;
    std::memcpy(&value, bytes.data() + i * sizeof(Element), sizeof(Element));
    return value;
}

/// into = partial 0 + partial 1 + ..., in fp32, rounded once.
void add_up(std::span<const std::byte> partials, std::span<std::byte> into, DType type) {
    const auto width = static_cast<size_t>(size_of(type));
    const size_t members = into.empty() ? 0 : partials.size() / into.size();
    for (size_t i = 0; i < into.size() / width; ++i) {
        float sum = 0;
        for (size_t m = 0; m < members; ++m) {
            const auto part = partials.subspan(m * into.size(), into.size());
            sum += type == DType::bf16 ? kernels::to_float(element<kernels::Bf16>(part, i))
                                       : element<float>(part, i);
        }
        if (type == DType::bf16) {
            const kernels::Bf16 rounded = kernels::to_bf16(sum);
            std::memcpy(into.data() + i * width, &rounded, width);
        } else {
            std::memcpy(into.data() + i * width, &sum, width);
        }
    }
}

}  // namespace

void MessageTransport::copy_own(Channel, std::span<const std::byte> from, std::span<std::byte> to) {
    if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

void MessageTransport::send(Ticket ticket, int peer, Channel channel,
                            std::span<const std::byte> bytes) {
    for (size_t at = 0; at < bytes.size(); at += kLargestMessage) {
        const size_t piece = std::min(kLargestMessage, bytes.size() - at);
        open_[ticket].requests.push_back(post_send(peer, channel, bytes.subspan(at, piece)));
    }
}

void MessageTransport::receive(Ticket ticket, int peer, Channel channel,
                               std::span<std::byte> bytes) {
    for (size_t at = 0; at < bytes.size(); at += kLargestMessage) {
        const size_t piece = std::min(kLargestMessage, bytes.size() - at);
        open_[ticket].requests.push_back(post_receive(peer, channel, bytes.subspan(at, piece)));
    }
}

Ticket MessageTransport::start(const Transfer& t) {
    const Ticket ticket = open_.take();
    const auto self = static_cast<size_t>(member_of(t.ranks, rank()));
    const size_t members = t.ranks.size();
    switch (t.what) {
        case Do::send:
            send(ticket, t.ranks[1], t.channel, t.send);
            break;
        case Do::receive:
            receive(ticket, t.ranks[0], t.channel, t.receive);
            break;
        case Do::broadcast:
            if (rank() != t.root) {
                receive(ticket, t.root, t.channel, t.receive);
                break;
            }
            for (const int peer : t.ranks) {
                if (peer != rank()) send(ticket, peer, t.channel, t.send);
            }
            break;
        case Do::all_gather:
            for (size_t i = 0; i < members; ++i) {
                const auto part = t.receive.subspan(i * t.send.size(), t.send.size());
                if (i == self) {
                    copy_own(t.channel, t.send, part);
                } else {
                    receive(ticket, t.ranks[i], t.channel, part);
                    send(ticket, t.ranks[i], t.channel, t.send);
                }
            }
            break;
        case Do::all_to_all: {
            const size_t mine = t.block(t.send, self).size();
            for (size_t i = 0; i < members; ++i) {
                const auto part = t.receive.subspan(i * mine, mine);
                const auto theirs = t.block(t.send, i);
                if (i == self) {
                    if (!t.own_stays) copy_own(t.channel, theirs, part);
                } else {
                    receive(ticket, t.ranks[i], t.channel, part);
                    send(ticket, t.ranks[i], t.channel, theirs);
                }
            }
            break;
        }
        case Do::gather:
            if (rank() != t.root) {
                send(ticket, t.root, t.channel, t.send);
                break;
            }
            // Members without a block (such as a root without a shard) have an empty range.
            for (size_t i = 0; i < members; ++i) {
                const auto part = t.block(t.receive, i);
                if (i == self) {
                    copy_own(t.channel, t.send, part);
                } else {
                    receive(ticket, t.ranks[i], t.channel, part);
                }
            }
            break;
        case Do::all_gather_v:
            for (size_t i = 0; i < members; ++i) {
                const auto part = t.block(t.receive, i);
                if (i == self) {
                    copy_own(t.channel, t.send, part);
                } else {
                    receive(ticket, t.ranks[i], t.channel, part);
                    send(ticket, t.ranks[i], t.channel, t.send);
                }
            }
            break;
        case Do::reduce:
            start_reduce(ticket, t);
            break;
        case Do::pass:
        case Do::combine_softmax:
        case Do::ordered_sum:
            break;
    }
    return ticket;
}

void MessageTransport::start_reduce(Ticket ticket, const Transfer& t) {
    if (!memory_is_of_host()) {
        throw UsageError(
            "--reduction native: copies between the GPUs of one process cannot add; use "
            "--reduction ordered, or NCCL");
    }
    if (rank() != t.root) {
        send(ticket, t.root, t.channel, t.send);
        return;
    }
    Sum& sum = open_[ticket].sum;
    sum.into = t.receive;
    sum.type = t.type;
    sum.partials.resize(t.ranks.size() * t.receive.size());
    for (size_t i = 0; i < t.ranks.size(); ++i) {
        const auto part = std::span(sum.partials).subspan(i * t.receive.size(), t.receive.size());
        if (t.ranks[i] == rank()) {
            copy_own(t.channel, t.send, part);
        } else {
            receive(ticket, t.ranks[i], t.channel, part);
        }
    }
}

bool MessageTransport::test(Ticket ticket) {
    auto& [open, sum] = open_[ticket];
    std::erase_if(open, [this](Request request) { return test_request(request); });
    if (!open.empty()) return false;
    if (!sum.into.empty()) {
        add_up(sum.partials, sum.into, sum.type);
        sum.into = {};
    }
    open_.give_back(ticket);
    return true;
}

}  // namespace vocabpipe
