// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/parquet/parquet.hpp"
#include "src/select/files/parquet/rows.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

constexpr int64_t kNumberRows = int64_t{1} << 16;  // per batch of numbers
constexpr int64_t kEmbeddingRows = 1024;           // per batch of lists

Corpus corpus_of_rows(int64_t rows) {
    return {.data = {}, .seq_length = 0, .samples = rows};
}

class ParquetUtility : public UtilityInput {
public:
    explicit ParquetUtility(std::unique_ptr<ParquetRows> rows)
        : UtilityInput(rows->path(), corpus_of_rows(rows->rows()), "imported"),
          rows_(std::move(rows)) {}
    void read(int64_t first, std::span<int32_t> to) override {
        rows_->read(first, std::ssize(to), [&](const ParquetRows::Part& part) {
            check_ids(part, path());
            numbers_.resize(static_cast<size_t>(part.count));
            copy_numbers(column_of(part, "utility", path()), part.offset, std::span(numbers_),
                         path() + ": column utility");
            int32_t* const at = to.data() + (part.row - first);
            for (int64_t i = 0; i < part.count; ++i) {
                at[i] = fixed_point_from(numbers_[static_cast<size_t>(i)],
                                         place_of(path(), part.row + i, "utility"));
            }
        });
    }

private:
    std::unique_ptr<ParquetRows> rows_;
    std::vector<double> numbers_;
};

/// The list of a row, within the array of all lists' values.
struct ListOf {
    const arrow::Array* values;
    int64_t begin, length;
};

ListOf list_at(const arrow::Array& lists, int64_t index, const std::string& path) {
    const auto at = [&](const auto& array) {
        return ListOf{.values = array.values().get(),
                      .begin = array.value_offset(index),
                      .length = array.value_length(index)};
    };
    switch (lists.type_id()) {
        case arrow::Type::LIST:
            return at(static_cast<const arrow::ListArray&>(lists));
        case arrow::Type::LARGE_LIST:
            return at(static_cast<const arrow::LargeListArray&>(lists));
        case arrow::Type::FIXED_SIZE_LIST:
            return at(static_cast<const arrow::FixedSizeListArray&>(lists));
        default:
            throw InputFileError(path + ": column embedding is of type " +
                                 lists.type()->ToString() + "; it must be lists of numbers");
    }
}

/// The length of the first row's list; 1 if the file has no rows.
int64_t width_of_first(ParquetRows& rows) {
    int64_t width = 1;
    rows.read(0, std::min<int64_t>(rows.rows(), 1), [&](const ParquetRows::Part& part) {
        width = list_at(column_of(part, "embedding", rows.path()), part.offset, rows.path()).length;
    });
    if (width > 0) return width;
    throw InputFileError(place_of(rows.path(), 0, "embedding") + " has no numbers");
}

class ParquetEmbedding : public EmbeddingInput {
public:
    explicit ParquetEmbedding(std::unique_ptr<ParquetRows> rows)
        : EmbeddingInput(rows->path(), corpus_of_rows(rows->rows()), width_of_first(*rows)),
          rows_(std::move(rows)) {}
    void read(int64_t first, std::span<float> to) override {
        rows_->read(first, std::ssize(to) / width(), [&](const ParquetRows::Part& part) {
            check_ids(part, path());
            const arrow::Array& lists = column_of(part, "embedding", path());
            for (int64_t i = 0; i < part.count; ++i) {
                read_list(lists, part.offset + i, part.row + i,
                          to.subspan(static_cast<size_t>((part.row + i - first) * width()),
                                     static_cast<size_t>(width())));
            }
        });
        check_embeddings(path(), width(), first, to);
    }

private:
    void read_list(const arrow::Array& lists, int64_t index, int64_t row, std::span<float> to) {
        const ListOf list = list_at(lists, index, path());
        if (list.length != width()) {
            throw InputFileError(place_of(path(), row, "embedding") + " has " +
                                 std::to_string(list.length) + " numbers, the first row " +
                                 std::to_string(width()) + "; all must have as many");
        }
        for (int64_t j = 0; list.values->null_count() > 0 && j < list.length; ++j) {
            if (!list.values->IsNull(list.begin + j)) continue;
            throw InputFileError(place_of(path(), row, "embedding") +
                                 " lacks a number; fill it or remove the row");
        }
        copy_numbers(*list.values, list.begin, to, path() + ": column embedding");
    }

    std::unique_ptr<ParquetRows> rows_;
};

class ParquetEdges : public EdgeInput {
public:
    explicit ParquetEdges(std::unique_ptr<ParquetRows> rows)
        : EdgeInput(rows->path(), rows->rows()), rows_(std::move(rows)) {}
    void read(int64_t first, std::span<WeightedEdge> to) override {
        rows_->read(first, std::ssize(to), [&](const ParquetRows::Part& part) {
            const arrow::Array& sources = column_of(part, "src", path());
            const arrow::Array& destinations = column_of(part, "dst", path());
            weights_.resize(static_cast<size_t>(part.count));
            copy_numbers(column_of(part, "weight", path()), part.offset, std::span(weights_),
                         path() + ": column weight");
            for (int64_t i = 0; i < part.count; ++i) {
                to[static_cast<size_t>(part.row - first + i)] = {
                    .source = integer_at(sources, part.offset + i, path() + ": column src"),
                    .destination =
                        integer_at(destinations, part.offset + i, path() + ": column dst"),
                    .weight = weights_[static_cast<size_t>(i)]};
            }
        });
    }

private:
    std::unique_ptr<ParquetRows> rows_;
    std::vector<double> weights_;
};

}  // namespace

std::unique_ptr<UtilityInput> open_parquet_utility(const std::string& path) {
    return std::make_unique<ParquetUtility>(std::make_unique<ParquetRows>(
        path, std::vector<std::string>{"utility"}, "id", kNumberRows));
}

std::unique_ptr<EmbeddingInput> open_parquet_embedding(const std::string& path) {
    return std::make_unique<ParquetEmbedding>(std::make_unique<ParquetRows>(
        path, std::vector<std::string>{"embedding"}, "id", kEmbeddingRows));
}

std::unique_ptr<EdgeInput> open_parquet_edges(const std::string& path) {
    return std::make_unique<ParquetEdges>(std::make_unique<ParquetRows>(
        path, std::vector<std::string>{"src", "dst", "weight"}, "", kNumberRows));
}

}  // namespace vocabpipe
