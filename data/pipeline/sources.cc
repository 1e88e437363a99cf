// SPDX-License-Identifier: Apache-2.0
// Where elements come from: tensors and files.
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "data/pipeline/stage.h"

namespace millrace {
namespace {

using Where = std::source_location;

std::string Joined(const std::vector<PartialShape>& shapes) {
  std::string text;
  for (const PartialShape& shape : shapes) {
    StrAppend(&text, text.empty() ? "" : ", ", shape.DebugString());
  }
  return text;
}

// What components have in common; `slices`: their rows.
StatusOr<int64_t> RowsOf(const std::vector<PartialShape>& shapes, bool slices) {
  if (shapes.empty()) return errors::InvalidArgument("a data set needs at least one component");
  if (!slices) return 1;
  int64_t rows = -1;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (!shapes[i].has_rank()) continue;
    if (shapes[i].rank() == 0) {
      return errors::InvalidArgument("component ", i,
                                     " is a scalar, which has no rows; "
                                     "FromTensors makes one element of whole tensors");
    }
    const int64_t own = shapes[i].dim(0);
    if (own < 0) continue;
    if (rows >= 0 && own != rows) {
      return errors::InvalidArgument("components have different numbers of rows: their shapes are ",
                                     Joined(shapes));
    }
    rows = own;
  }
  return rows;
}

PartialShape RowShape(const PartialShape& shape) {
  return shape.has_rank() ? PartialShape(shape.dims().subspan(1)) : shape;
}

// Placeholders in place of tensors; of any number of rows if elements are rows. False on an error.
bool FeedTensors(StagePlace& place, bool slices, std::vector<Input>* components) {
  for (Input& component : *components) {
    if (!component.is_constant()) continue;
    PartialShape shape = component.value().shape();
    if (slices) shape.SetDim(0, -1);
    const Output fed =
        place.scope
            .AddOp("Placeholder", {}, {{"dtype", component.value().dtype()}, {"shape", shape}},
                   place.stage.where)
            .output(0);
    if (!fed.valid()) return false;
    place.feeds->push_back({fed, component.value()});
    component = fed;
  }
  return true;
}

// Either of tensors or of outputs.
Dataset FromComponents(std::vector<Input> components, std::vector<DataType> dtypes,
                       std::vector<PartialShape> shapes, bool slices, bool uses_graph,
                       Where where) {
  const StatusOr<int64_t> rows = RowsOf(shapes, slices);
  if (!rows.ok()) return FailedDataset(rows.status(), where);
  DatasetStage stage;
  stage.op = slices ? "TensorSliceDataset" : "TensorDataset";
  stage.text = slices ? "TensorSlices" : "Tensors";
  stage.dtypes = std::move(dtypes);
  for (const PartialShape& shape : shapes) {
    stage.shapes.push_back(slices ? RowShape(shape) : shape);
  }
  stage.cardinality = *rows < 0 ? Dataset::kUnknown : *rows;
  stage.where = where;
  stage.add = [components = std::move(components), slices, uses_graph](StagePlace& place) {
    place.uses_graph |= uses_graph;
    std::vector<Input> inputs = components;
    if (place.feeds != nullptr && !FeedTensors(place, slices, &inputs)) return Output();
    return AddStageOp(
        place, place.stage.op, {std::move(inputs)},
        {{"Toutput_types", place.stage.dtypes}, {"output_shapes", place.stage.shapes}});
  };
  return NewDataset(std::move(stage));
}

Dataset FromTensorList(std::vector<Tensor> components, bool slices, Where where) {
  std::vector<DataType> dtypes;
  std::vector<PartialShape> shapes;
  std::vector<Input> inputs;
  for (std::size_t i = 0; i < components.size(); ++i) {
    if (!components[i].IsInitialized()) {
      return FailedDataset(errors::InvalidArgument("component ", i, " is an empty Tensor object"),
                           where);
    }
    dtypes.push_back(components[i].dtype());
    shapes.push_back(components[i].shape());
    inputs.push_back(std::move(components[i]));
  }
  return FromComponents(std::move(inputs), std::move(dtypes), std::move(shapes), slices, false,
                        where);
}

Dataset FromOutputList(const std::vector<Output>& components, bool slices, Where where) {
  std::vector<DataType> dtypes;
  std::vector<PartialShape> shapes;
  for (std::size_t i = 0; i < components.size(); ++i) {
    if (!components[i].valid()) {
      return FailedDataset(errors::InvalidArgument("component ", i, " is not a valid output"),
                           where);
    }
    dtypes.push_back(BaseType(components[i].dtype()));
    shapes.push_back(components[i].shape());
  }
  return FromComponents(std::vector<Input>(components.begin(), components.end()), std::move(dtypes),
                        std::move(shapes), slices, true, where);
}

Status CheckCompression(const FileOptions& options) {
  for (std::string_view known : {"", "ZLIB", "GZIP"}) {
    if (options.compression == known) return OkStatus();
  }
  return errors::InvalidArgument("compression '", options.compression,
                                 "' is none of '', 'ZLIB' and 'GZIP'");
}

Status CheckFiles(const std::vector<std::string>& files, const FileOptions& options) {
  if (files.empty()) return errors::InvalidArgument("there are no files in the list");
  return CheckCompression(options);
}

Status CheckFile(const Output& file, const FileOptions& options) {
  if (!file.valid()) return errors::InvalidArgument("the name of the file is not a valid output");
  if (BaseType(file.dtype()) != kString) {
    return errors::InvalidArgument("the name of a file is ", DataTypeName(file.dtype()),
                                   ", not string");
  }
  return CheckCompression(options);
}

Tensor NamesTensor(const std::vector<std::string>& files) {
  return Tensor::FromValues<std::string>(files, Shape({static_cast<int64_t>(files.size())}));
}

// Records of files: strings. `sizes` of a FixedLengthRecordDataset: header, record, footer.
Dataset FromFiles(std::string op, std::string text, const Input& names, const FileOptions& options,
                  const std::vector<int64_t>& sizes, Where where) {
  DatasetStage stage;
  stage.op = std::move(op);
  stage.text = std::move(text);
  stage.dtypes = {kString};
  stage.shapes = {PartialShape({})};
  stage.where = where;
  stage.read_file = [op = stage.op, text = stage.text, options, sizes, where](const Output& file) {
    return FromFiles(op, text, file, options, sizes, where);
  };
  if (names.is_constant()) {
    const auto flat = names.value().flat<std::string>();
    stage.files.assign(flat.begin(), flat.end());
  }
  stage.add = [names, options, sizes](StagePlace& place) {
    place.uses_graph |= !names.is_constant();
    std::vector<std::vector<Input>> args = {{names}};
    for (const int64_t size : sizes) args.push_back({size});
    if (sizes.empty()) {
      args.push_back({options.compression});
      args.push_back({options.buffer_bytes});
    } else {
      args.push_back({options.buffer_bytes});
      args.push_back({options.compression});
    }
    return AddStageOp(place, place.stage.op, std::move(args), {});
  };
  return NewDataset(std::move(stage));
}

Dataset OfBlocks(std::string text, const Input& names, int64_t record_bytes,
                 const FixedLengthOptions& options, Where where) {
  if (record_bytes <= 0 || options.header_bytes < 0 || options.footer_bytes < 0) {
    return FailedDataset(
        errors::InvalidArgument("records of ", record_bytes, " bytes, header ",
                                options.header_bytes, ", footer ", options.footer_bytes,
                                ": records need at least 1, the others 0"),
        where);
  }
  return FromFiles("FixedLengthRecordDatasetV2", std::move(text), names, options.file,
                   {options.header_bytes, record_bytes, options.footer_bytes}, where);
}

std::string FilesText(std::string_view kind, const std::vector<std::string>& files) {
  return StrCat(kind, "(", files.size(), files.size() == 1 ? " file)" : " files)");
}

}  // namespace

Dataset Dataset::FromTensors(std::vector<Tensor> components, Here where) {
  return FromTensorList(std::move(components), /*slices=*/false, where);
}
Dataset Dataset::FromTensorSlices(std::vector<Tensor> components, Here where) {
  return FromTensorList(std::move(components), /*slices=*/true, where);
}
Dataset Dataset::FromOutputs(std::vector<Output> components, Here where) {
  return FromOutputList(components, /*slices=*/false, where);
}
Dataset Dataset::FromOutputSlices(std::vector<Output> components, Here where) {
  return FromOutputList(components, /*slices=*/true, where);
}

Dataset Dataset::Range(int64_t start, int64_t stop, int64_t step, Here where) {
  if (step == 0) return FailedDataset(errors::InvalidArgument("the step of a range is 0"), where);
  DatasetStage stage;
  stage.op = "RangeDataset";
  stage.text = StrCat("Range(", start, ", ", stop, ", ", step, ")");
  stage.dtypes = {kInt64};
  stage.shapes = {PartialShape({})};
  const auto span = static_cast<__int128>(stop) - start;
  stage.cardinality = 0;
  if ((span > 0) == (step > 0) && span != 0) {
    const __int128 count = (span + step + (step > 0 ? -1 : 1)) / step;
    stage.cardinality = count > INT64_MAX ? INT64_MAX : static_cast<int64_t>(count);
  }
  stage.where = where;
  stage.add = [start, stop, step](StagePlace& place) {
    return AddTypedOp(place, "RangeDataset", {{start}, {stop}, {step}});
  };
  return NewDataset(std::move(stage));
}

Dataset Dataset::TextLines(std::vector<std::string> files, const FileOptions& options, Here where) {
  if (const Status ok = CheckFiles(files, options); !ok.ok()) return FailedDataset(ok, where);
  return FromFiles("TextLineDataset", FilesText("TextLines", files), NamesTensor(files), options,
                   {}, where);
}

Dataset Dataset::TextLines(const Output& file, const FileOptions& options, Here where) {
  if (const Status ok = CheckFile(file, options); !ok.ok()) return FailedDataset(ok, where);
  return FromFiles("TextLineDataset", "TextLines", file, options, {}, where);
}

Dataset Dataset::TfRecords(std::vector<std::string> files, const FileOptions& options, Here where) {
  if (const Status ok = CheckFiles(files, options); !ok.ok()) return FailedDataset(ok, where);
  return FromFiles("TFRecordDataset", FilesText("TfRecords", files), NamesTensor(files), options,
                   {}, where);
}

Dataset Dataset::TfRecords(const Output& file, const FileOptions& options, Here where) {
  if (const Status ok = CheckFile(file, options); !ok.ok()) return FailedDataset(ok, where);
  return FromFiles("TFRecordDataset", "TfRecords", file, options, {}, where);
}

Dataset Dataset::FixedLength(std::vector<std::string> files, int64_t record_bytes,
                             const FixedLengthOptions& options, Here where) {
  if (const Status ok = CheckFiles(files, options.file); !ok.ok()) return FailedDataset(ok, where);
  return OfBlocks(FilesText("FixedLength", files), NamesTensor(files), record_bytes, options,
                  where);
}

Dataset Dataset::FixedLength(const Output& file, int64_t record_bytes,
                             const FixedLengthOptions& options, Here where) {
  if (const Status ok = CheckFile(file, options.file); !ok.ok()) return FailedDataset(ok, where);
  return OfBlocks("FixedLength", file, record_bytes, options, where);
}

Dataset Dataset::ListFiles(const std::string& pattern, const ListFilesOptions& options,
                           Here where) {
  DatasetStage stage;
  stage.op = "TensorSliceDataset";
  stage.text = StrCat("ListFiles(", pattern, ")");
  stage.gives_file_names = true;
  stage.dtypes = {kString};
  stage.shapes = {PartialShape({})};
  stage.where = where;
  stage.add = [pattern](StagePlace& place) {
    const Scope& s = place.scope;
    const Where where = place.stage.where;
    const std::vector<Input> text = {pattern};
    const Output names = s.AddOp("MatchingFiles", text, {}, where).output(0);
    if (!names.valid()) return Output();
    const Output count =
        s.AddOp("Size", std::vector<Input>{names}, {{"out_type", kInt32}}, where).output(0);
    if (!count.valid()) return Output();
    const Output any = s.AddOp("Greater", std::vector<Input>{count, 0}, {}, where).output(0);
    if (!any.valid()) return Output();
    const Operation check = s.AddOpWithLists(
        "Assert", std::vector<std::vector<Input>>{{any}, {StrCat("no file matches ", pattern)}},
        {{"T", std::vector<DataType>{kString}}}, where);
    if (!check.valid()) return Output();
    const Output checked = s.WithControlDependencies({check})
                               .AddOp("Identity", std::vector<Input>{names}, {}, where)
                               .output(0);
    if (!checked.valid()) return Output();
    return AddStageOp(place, "TensorSliceDataset", {{checked}},
                      {{"Toutput_types", place.stage.dtypes},
                       {"output_shapes", place.stage.shapes},
                       {"is_files", true}});
  };
  const Dataset files = NewDataset(std::move(stage));
  return options.shuffle ? files.Shuffle(-1, {.seed = options.seed}, where) : files;
}

Dataset Dataset::Csv(std::vector<std::string> files, std::vector<Tensor> defaults,
                     const CsvOptions& options, Here where) {
  if (const Status ok = CheckFiles(files, options.file); !ok.ok()) return FailedDataset(ok, where);
  if (defaults.empty()) {
    return FailedDataset(errors::InvalidArgument("there are no columns: Csv needs one default, or "
                                                 "an empty tensor of the column's type, for each"),
                         where);
  }
  if (!options.columns.empty() && options.columns.size() != defaults.size()) {
    return FailedDataset(
        errors::InvalidArgument(options.columns.size(), " columns are chosen, but ",
                                defaults.size(), " have a default"),
        where);
  }
  const FileOptions file_options = options.file;
  Dataset lines = TextLines(files, file_options, where);
  if (options.header) {
    lines = FromTensorSlices({NamesTensor(files)}, where)
                .FlatMap(
                    [file_options, where](const Scope&, std::span<const Output> file) {
                      return TextLines(file[0], file_options, where).Skip(1, where);
                    },
                    where);
  }
  const auto parse = [defaults, options, where](const Scope& s, std::span<const Output> line) {
    std::vector<DataType> types;
    for (const Tensor& value : defaults) types.push_back(value.dtype());
    std::vector<int64_t> columns(options.columns.begin(), options.columns.end());
    const Operation op = s.AddOpWithLists(
        "DecodeCSV", std::vector<std::vector<Input>>{{line[0]}, {defaults.begin(), defaults.end()}},
        {{"OUT_TYPE", types},
         {"field_delim", std::string(1, options.delimiter)},
         {"use_quote_delim", options.quotes},
         {"na_value", options.na_value},
         {"select_cols", columns}},
        where);
    std::vector<Output> fields;
    for (int i = 0; i < op.num_outputs(); ++i) fields.push_back(op.output(i));
    return fields;
  };
  return lines.Map(parse, {}, where);
}

Dataset Dataset::Idx(const std::string& path, Here where) {
  StatusOr<Tensor> array = ReadIdx(path);
  return array.ok() ? FromTensorSlices({*std::move(array)}, where)
                    : FailedDataset(array.status(), where);
}

Dataset Dataset::Npy(const std::string& path, Here where) {
  StatusOr<Tensor> array = ReadNpy(path);
  return array.ok() ? FromTensorSlices({*std::move(array)}, where)
                    : FailedDataset(array.status(), where);
}

Dataset Dataset::Npz(const std::string& path, const std::vector<std::string>& arrays, Here where) {
  StatusOr<std::map<std::string, Tensor>> all = ReadNpz(path);
  if (!all.ok()) return FailedDataset(all.status(), where);
  std::vector<Tensor> components;
  for (const std::string& name : arrays) {
    const auto found = all->find(name);
    if (found == all->end()) {
      std::string names;
      for (const auto& [key, value] : *all) StrAppend(&names, names.empty() ? "" : ", ", key);
      return FailedDataset(errors::NotFound(path, " has no array '", name, "'; it has ", names),
                           where);
    }
    components.push_back(found->second);
  }
  return FromTensorSlices(std::move(components), where);
}

}  // namespace millrace
