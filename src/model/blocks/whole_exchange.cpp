// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/whole_exchange.hpp"

#include "src/model/views.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

void exchange_whole(TileLink& link, std::string_view what, const std::function<Tensor(int)>& part,
                    const std::function<void()>& make) {
    const Tensor own = part(link.rank());
    const std::vector<int64_t> ends{own.bytes()};
    std::vector<TileLink::Outgoing> send;
    std::vector<TileLink::Incoming> receive;
    for (int member = 0; member < link.size(); ++member) {
        send.push_back({.bytes = bytes_of<const std::byte>(own), .ends = ends});
        receive.push_back({.bytes = bytes_of<std::byte>(part(member)), .ends = ends});
    }
    TileLink::Operation operation = link.all_to_all(send, receive, {.what = what});
    if (make) make();
    for (int i = 0; i < link.size(); ++i) operation.release(link.to(i), 1);
    operation.finish();
}

void sum_whole(const StagePass& pass, TileLink& link, std::string_view name, Tensor partials,
               const std::function<void(Tensor)>& make, ConstTensor bias, ConstTensor residual,
               Tensor out) {
    const auto of = [&](int member) { return partials.row_range(member * out.rows, out.rows); };
    exchange_whole(link, "all-reduce for " + std::string(name), of, [&] { make(of(link.rank())); });
    pass.op().fold_partials(pass.ctx, partials, link.size(), bias, residual, out);
}

}  // namespace vocabpipe
