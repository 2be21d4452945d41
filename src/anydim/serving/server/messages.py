"""The protobuf messages of the open inference protocol v2, described by a table.

They live in a pool of their own, so that a client library in the same process may register the
same names.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = "inference.GRPCInferenceService"

# message: its fields as "name type number"; types: [] repeated, {} map from text, | one of `choice`
_MESSAGES = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live bool 1",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready bool 1",
    "ModelReadyRequest": "name string 1, version string 2",
    "ModelReadyResponse": "ready bool 1",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name string 1, version string 2, extensions []string 3",
    "ModelMetadataRequest": "name string 1, version string 2",
    "ModelMetadataResponse": "name string 1, versions []string 2, platform string 3, "
    "inputs []ModelMetadataResponse.TensorMetadata 4, "
    "outputs []ModelMetadataResponse.TensorMetadata 5",
    "ModelMetadataResponse.TensorMetadata": "name string 1, datatype string 2, shape []int64 3",
    "InferParameter": "bool_param |bool 1, int64_param |int64 2, string_param |string 3, "
    "double_param |double 4, uint64_param |uint64 5",
    "InferTensorContents": "bool_contents []bool 1, int_contents []int32 2, "
    "int64_contents []int64 3, uint_contents []uint32 4, uint64_contents []uint64 5, "
    "fp32_contents []float 6, fp64_contents []double 7, bytes_contents []bytes 8",
    "ModelInferRequest": "model_name string 1, model_version string 2, id string 3, "
    "parameters {}InferParameter 4, inputs []ModelInferRequest.InferInputTensor 5, "
    "outputs []ModelInferRequest.InferRequestedOutputTensor 6, raw_input_contents []bytes 7",
    "ModelInferRequest.InferInputTensor": "name string 1, datatype string 2, shape []int64 3, "
    "parameters {}InferParameter 4, contents InferTensorContents 5",
    "ModelInferRequest.InferRequestedOutputTensor": "name string 1, parameters {}InferParameter 2",
    "ModelInferResponse": "model_name string 1, model_version string 2, id string 3, "
    "parameters {}InferParameter 4, outputs []ModelInferResponse.InferOutputTensor 5, "
    "raw_output_contents []bytes 6",
    "ModelInferResponse.InferOutputTensor": "name string 1, datatype string 2, shape []int64 3, "
    "parameters {}InferParameter 4, contents InferTensorContents 5",
    "ModelStreamInferResponse": "error_message string 1, infer_response ModelInferResponse 2",
    "ModelRepositoryParameter": "bool_param |bool 1, int64_param |int64 2, string_param |string 3, "
    "bytes_param |bytes 4",
    "RepositoryIndexRequest": "repository_name string 1, ready bool 2",
    "RepositoryIndexResponse": "models []RepositoryIndexResponse.ModelIndex 1",
    "RepositoryIndexResponse.ModelIndex": "name string 1, version string 2, state string 3, "
    "reason string 4",
    "RepositoryModelLoadRequest": "repository_name string 1, model_name string 2, "
    "parameters {}ModelRepositoryParameter 3",
    "RepositoryModelLoadResponse": "",
    "RepositoryModelUnloadRequest": "repository_name string 1, model_name string 2, "
    "parameters {}ModelRepositoryParameter 3",
    "RepositoryModelUnloadResponse": "",
    "ModelStatisticsRequest": "name string 1, version string 2",
    "ModelStatisticsResponse": "model_stats []ModelStatistics 1",
    "ModelStatistics": "name string 1, version string 2, last_inference uint64 3, "
    "inference_count uint64 4, execution_count uint64 5, inference_stats InferStatistics 6",
    "InferStatistics": "success StatisticDuration 1, fail StatisticDuration 2, "
    "queue StatisticDuration 3, compute_input StatisticDuration 4, "
    "compute_infer StatisticDuration 5, compute_output StatisticDuration 6, "
    "cache_hit StatisticDuration 7, cache_miss StatisticDuration 8",
    "StatisticDuration": "count uint64 1, ns uint64 2",
    "ModelConfigRequest": "name string 1, version string 2",
    "ModelConfigResponse": "config ModelConfig 1",
    "ModelConfig": "name string 1, platform string 2, max_batch_size int32 4, "
    "input []ModelInput 5, output []ModelOutput 6, backend string 17",
    "ModelInput": "name string 1, data_type int32 2, dims []int64 4",
    "ModelOutput": "name string 1, data_type int32 2, dims []int64 3",
}  # fmt: skip

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _FIELD.TYPE_BOOL, "int32": _FIELD.TYPE_INT32, "int64": _FIELD.TYPE_INT64,
    "uint32": _FIELD.TYPE_UINT32, "uint64": _FIELD.TYPE_UINT64, "float": _FIELD.TYPE_FLOAT,
    "double": _FIELD.TYPE_DOUBLE, "string": _FIELD.TYPE_STRING, "bytes": _FIELD.TYPE_BYTES,
}  # fmt: skip


def _file() -> Any:
    """The description of all messages."""
    file = descriptor_pb2.FileDescriptorProto(
        name="anydim/inference.proto", package=PACKAGE, syntax="proto3"
    )
    made: dict[str, Any] = {}
    for name in _MESSAGES:
        outer, _, inner = name.partition(".")
        made[name] = made[outer].nested_type.add(name=inner) if inner else file.message_type.add(name=name)  # noqa: E501  # fmt: skip
    for name, fields in _MESSAGES.items():
        for text in filter(None, fields.split(", ")):
            _add(made[name], name, *text.split(" "))
    return file


def _add(message: Any, path: str, name: str, kind: str, number: str) -> None:
    bare = kind.lstrip("[]{}|")
    field = message.field.add(name=name, number=int(number))
    field.label = _FIELD.LABEL_REPEATED if kind[0] in "[{" else _FIELD.LABEL_OPTIONAL
    if kind[0] == "{":
        entry = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        pair = message.nested_type.add(name=entry)
        pair.options.map_entry = True
        pair.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
        pair.field.add(name="value", number=2, type=_FIELD.TYPE_MESSAGE,
                       label=_FIELD.LABEL_OPTIONAL, type_name=f".{PACKAGE}.{bare}")  # fmt: skip
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{PACKAGE}.{path}.{entry}"
        return
    if kind[0] == "|":
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    if bare in _SCALARS:
        field.type = _SCALARS[bare]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{PACKAGE}.{bare}"


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def message(name: str) -> Any:
    """The class of a message, by its name in the protocol."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))
