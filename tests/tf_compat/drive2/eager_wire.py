# SPDX-License-Identifier: Apache-2.0
"""The messages of tensorflow.eager.EagerService, built from a table.

TensorFlow's Python package does not hold these classes.  Each line below is
"Message: name=number type; ..."; "r" repeats, "m" is a map from string, types
with a dot are found in the package, others are of this file.  All fields of a
oneof are written as plain fields, which reads and writes the same bytes.
"""
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import (  # noqa: F401
    attr_value_pb2, device_attributes_pb2, function_pb2, tensor_pb2,
    tensor_shape_pb2, types_pb2, versions_pb2)
from tensorflow.core.protobuf import tensorflow_server_pb2  # noqa: F401

TABLE = """
ResourceDtypeAndShape: dtype=1 e.DataType; shape=2 t.TensorShapeProto
RemoteTensorHandle: op_id=1 int64; output_num=2 int32; device=3 string; op_device=4 string; dtype=5 e.DataType; resource_dtypes_and_shapes=6 r ResourceDtypeAndShape
Input: remote_handle=1 RemoteTensorHandle; tensor=2 t.TensorProto
Operation: id=1 int64; name=2 string; op_inputs=10 r Input; control_op_ids=4 r int64; attrs=5 m t.AttrValue; device=6 string; is_component_function=7 bool; func_step_id=8 int64; is_function=9 bool
SendTensorOp: op_id=1 int64; tensors=2 r t.TensorProto; device_name=3 string
LocalTensorHandle: tensor=1 t.TensorProto; device=2 string
Handle: local_handle=1 LocalTensorHandle; remote_handle=2 RemoteTensorHandle
SendPackedHandleOp: op_id=1 int64; handles=2 r Handle; device_name=3 string
RegisterFunctionOp: function_def=1 t.FunctionDef; is_component_function=2 bool; library=3 t.FunctionDefLibrary
RemoveFunctionOp: function_name=1 string
CleanupFunctionOp: step_id=1 int64
SyncRemoteExecutorForStream:
QueueItem: handle_to_decref=1 RemoteTensorHandle; operation=2 Operation; send_tensor=3 SendTensorOp; register_function=4 RegisterFunctionOp; cleanup_function=5 CleanupFunctionOp; sync_remote_executor_for_stream=6 SyncRemoteExecutorForStream; send_packed_handle=7 SendPackedHandleOp; remove_function=8 RemoveFunctionOp
QueueResponse: shape=1 r t.TensorShapeProto; device=3 r string; tensor=2 r t.TensorProto
CreateContextRequest: server_def=1 t.ServerDef; async=2 bool; keep_alive_secs=3 int64; version_def=4 t.VersionDef; cluster_device_attributes=6 r t.DeviceAttributes; context_id=7 fixed64; context_view_id=8 fixed64; lazy_copy_remote_function_inputs=9 bool; clear_existing_contexts=10 bool
CreateContextResponse: device_attributes=2 r t.DeviceAttributes
UpdateContextRequest: server_def=1 t.ServerDef; cluster_device_attributes=2 r t.DeviceAttributes; context_id=3 fixed64; context_view_id=4 fixed64
UpdateContextResponse: device_attributes=1 r t.DeviceAttributes
EnqueueRequest: context_id=1 fixed64; queue=3 r QueueItem
EnqueueResponse: queue_response=1 r QueueResponse
WaitQueueDoneRequest: context_id=1 fixed64; op_id=2 r int64
WaitQueueDoneResponse:
RunComponentFunctionRequest: context_id=1 fixed64; operation=2 Operation; output_num=3 r int32
RunComponentFunctionResponse: shape=1 r t.TensorShapeProto; tensor=2 r t.TensorProto
KeepAliveRequest: context_id=1 fixed64
KeepAliveResponse: context_view_id=1 fixed64
CloseContextRequest: context_id=1 fixed64; context_view_id=2 fixed64
CloseContextResponse:
"""

PACKAGE = "millrace.eagerwire"  # a name of its own; names do not travel
F = descriptor_pb2.FieldDescriptorProto
SCALARS = {"int64": F.TYPE_INT64, "int32": F.TYPE_INT32, "bool": F.TYPE_BOOL,
           "string": F.TYPE_STRING, "fixed64": F.TYPE_FIXED64}


def _set_type(field, name):
    if name in SCALARS:
        field.type = SCALARS[name]
    elif name.startswith("e."):
        field.type, field.type_name = F.TYPE_ENUM, ".tensorflow." + name[2:]
    elif name.startswith("t."):
        field.type, field.type_name = F.TYPE_MESSAGE, ".tensorflow." + name[2:]
    else:
        field.type = F.TYPE_MESSAGE
        field.type_name = ".%s.%s" % (PACKAGE, name)


def _build():
    file = descriptor_pb2.FileDescriptorProto(
        name="eagerwire.proto", package=PACKAGE, syntax="proto3")
    for module in (attr_value_pb2, device_attributes_pb2, function_pb2,
                   tensor_pb2, tensor_shape_pb2, types_pb2, versions_pb2,
                   tensorflow_server_pb2):
        file.dependency.append(module.DESCRIPTOR.name)
    names = []
    for line in TABLE.strip().splitlines():
        name, _, fields = line.partition(":")
        names.append(name)
        message = file.message_type.add(name=name)
        for text in filter(None, (f.strip() for f in fields.split(";"))):
            head, *words = text.split()
            key, number = head.split("=")
            field = message.field.add(name=key, number=int(number))
            field.label = F.LABEL_OPTIONAL
            if words[0] == "r":
                field.label = F.LABEL_REPEATED
            if words[0] == "m":
                entry = message.nested_type.add(
                    name=key.capitalize() + "Entry")
                entry.options.map_entry = True
                k = entry.field.add(name="key", number=1,
                                    label=F.LABEL_OPTIONAL)
                _set_type(k, "string")
                v = entry.field.add(name="value", number=2,
                                    label=F.LABEL_OPTIONAL)
                _set_type(v, words[1])
                field.label, field.type = F.LABEL_REPEATED, F.TYPE_MESSAGE
                field.type_name = ".%s.%s.%s" % (PACKAGE, name, entry.name)
            else:
                _set_type(field, words[-1])
    pool = descriptor_pool.Default()
    pool.Add(file) if not hasattr(pool, "AddSerializedFile") else \
        pool.AddSerializedFile(file.SerializeToString())
    for name in names:
        globals()[name] = message_factory.GetMessageClass(
            pool.FindMessageTypeByName("%s.%s" % (PACKAGE, name)))


_build()
