// SPDX-License-Identifier: Apache-2.0
// An all-gather by pieces over a link of one's own, used while it arrives: every rank sums up the
// rows of all ranks, and takes them in the order in which they come.
//
//     overlapped_gather 4              four threads
//     mpirun -np 4 overlapped_gather   four processes
#include "vocabpipe/error.hpp"
#include "vocabpipe/tile_link.hpp"
#include "vocabpipe/tile_map.hpp"
#include "vocabpipe/world.hpp"

#include <cstdio>
#include <cstdlib>
#include <numeric>

using namespace vocabpipe;

int main(int argc, char** argv) {
    World world = argc > 1 ? World::threads(std::atoi(argv[1])) : World::mpi();
    return world.run_program("overlapped_gather", [](Communicator& ranks) {
        constexpr int64_t kColumns = 64, kRowBytes = kColumns * sizeof(float);
        const TileMap map = TileMap::even(100L * ranks.size(), ranks.size(), 3);
        std::vector<float> x(static_cast<size_t>(map.rows() * kColumns));
        const RowRange own = map.rows(ranks.rank());
        for (int64_t i = own.first * kColumns; i < own.end * kColumns; ++i) {
            x[static_cast<size_t>(i)] = static_cast<float>(i / kColumns);
        }

        const auto link = open_tile_link(ranks, Mesh{.pipeline = ranks.size()}, Axis::pipeline);
        std::vector<std::vector<int64_t>> ends;
        std::vector<TileLink::Outgoing> send;
        std::vector<TileLink::Incoming> receive;
        const auto part = [&](int member) {
            const RowRange rows = map.rows(member);
            return std::as_writable_bytes(std::span(x))
                .subspan(size_t(rows.first * kRowBytes), size_t(rows.size() * kRowBytes));
        };
        for (int m = 0; m < link->size(); ++m) ends.push_back(map.ends(m, kRowBytes));
        for (int m = 0; m < link->size(); ++m) {
            send.push_back({part(link->rank()), ends[size_t(link->rank())]});
            receive.push_back({part(m), ends[size_t(m)]});
        }
        TileLink::Operation gather = link->all_to_all(send, receive, {"all-gather of x"});
        for (int i = 0; i < link->size(); ++i)
            gather.release(link->to(i), map.pieces(link->rank()));
        double sum = 0;
        for (int i = 0; i < link->size(); ++i) {
            const int member = link->from(i);
            for (int used = 0; used < map.pieces(member);) {
                const int there = gather.wait(member, used + 1);  // all that have come
                const RowRange rows = map.rows(member, used, there);
                sum = std::accumulate(&x[size_t(rows.first * kColumns)],
                                      x.data() + rows.end * kColumns, sum);
                used = there;
            }
        }
        gather.finish();
        const auto expected = double(kColumns) * double(map.rows() * (map.rows() - 1) / 2);
        ranks.agree([&] {
            if (sum != expected) throw Error(ExitCode::failed, "the sum is wrong");
        });
        if (ranks.rank() == 0) {
            std::printf("%d ranks have the sums of %ld rows\n", ranks.size(), map.rows());
        }
    });
}
