// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/message_transport.hpp"

#include <algorithm>
#include <cstring>

namespace vocabpipe {

namespace {

/// MPI counts are ints; larger messages travel in pieces of this size.
constexpr size_t kLargestMessage = size_t{1} << 30;

template <typename Bytes>
Bytes block(Bytes all, std::span<const int64_t> begin, size_t member) {
    return all.subspan(static_cast<size_t>(begin[member]),
                       static_cast<size_t>(begin[member + 1] - begin[member]));
}

}  // namespace

void MessageTransport::copy_own(Channel, std::span<const std::byte> from, std::span<std::byte> to) {
    if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

void MessageTransport::send(Ticket ticket, int peer, Channel channel,
                            std::span<const std::byte> bytes) {
    for (size_t at = 0; at < bytes.size(); at += kLargestMessage) {
        const size_t piece = std::min(kLargestMessage, bytes.size() - at);
        tickets_[ticket].push_back(post_send(peer, channel, bytes.subspan(at, piece)));
    }
}

void MessageTransport::receive(Ticket ticket, int peer, Channel channel,
                               std::span<std::byte> bytes) {
    for (size_t at = 0; at < bytes.size(); at += kLargestMessage) {
        const size_t piece = std::min(kLargestMessage, bytes.size() - at);
        tickets_[ticket].push_back(post_receive(peer, channel, bytes.subspan(at, piece)));
    }
}

Ticket MessageTransport::start(const Transfer& t) {
    Ticket ticket = 0;
    if (free_.empty()) {
        ticket = static_cast<Ticket>(tickets_.size());
        tickets_.emplace_back();
    } else {
        ticket = free_.back();
        free_.pop_back();
    }
    const auto self =
        static_cast<size_t>(std::find(t.ranks.begin(), t.ranks.end(), rank()) - t.ranks.begin());
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
        case Do::exchange: {
            const size_t mine = block(t.send, t.block_begin, self).size();
            for (size_t i = 0; i < members; ++i) {
                const auto part = t.receive.subspan(i * mine, mine);
                const auto theirs = block(t.send, t.block_begin, i);
                if (i == self) {
                    copy_own(t.channel, theirs, part);
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
            // Members without a block (a root that owns no shard) have an empty range.
            for (size_t i = 0; i < members; ++i) {
                const auto part = block(t.receive, t.block_begin, i);
                if (i == self) {
                    copy_own(t.channel, t.send, part);
                } else {
                    receive(ticket, t.ranks[i], t.channel, part);
                }
            }
            break;
        case Do::pass:
        case Do::combine:
        case Do::fold:
            break;
    }
    return ticket;
}

bool MessageTransport::test(Ticket ticket) {
    std::vector<Request>& open = tickets_[ticket];
    std::erase_if(open, [this](Request request) { return test_request(request); });
    if (!open.empty()) return false;
    free_.push_back(ticket);
    return true;
}

}  // namespace vocabpipe
