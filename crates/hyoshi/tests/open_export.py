"""Opens an export with Perfetto's own messages (PyPI: perfetto) and checks what is in it.

usage: open_export.py FILE JOBS FLOWS [REGIONS]
"""
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

trace = perfetto_trace_pb2.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
names, categories, tracks, nested, leave, arrive = {}, {}, {}, {}, {}, {}
count = {"job": 0, "run": 0, "lane": 0, "region": 0}
for packet in trace.packet:
    names.update((entry.iid, entry.name) for entry in packet.interned_data.event_names)
    categories.update((entry.iid, entry.name) for entry in packet.interned_data.event_categories)
    if packet.HasField("track_descriptor"):
        descriptor = packet.track_descriptor
        assert not descriptor.parent_uuid or descriptor.parent_uuid in tracks, descriptor
        tracks[descriptor.uuid] = descriptor
    if not packet.HasField("track_event"):
        continue
    event = packet.track_event
    assert event.track_uuid in tracks, event
    open_slices = nested.setdefault(event.track_uuid, [])
    if event.type == event.TYPE_SLICE_BEGIN:
        assert event.name_iid in names, event
        count[categories[event.category_iids[0]]] += 1
        open_slices.append(packet.timestamp)
        for flow in event.terminating_flow_ids:
            arrive[flow] = packet.timestamp
    elif event.type == event.TYPE_SLICE_END:
        assert open_slices.pop() <= packet.timestamp, event
    elif event.type == event.TYPE_INSTANT:
        assert event.name_iid in names, event
        for flow in event.flow_ids:
            leave[flow] = packet.timestamp
assert not any(nested.values()), "a slice without an end"
assert all(flow in leave and leave[flow] <= at for flow, at in arrive.items()), "an arrow from nowhere"
assert any(track.process.process_name for track in tracks.values())
assert any(track.thread.thread_name for track in tracks.values())
assert any(track.counter.unit_name for track in tracks.values())
assert (count["job"], len(arrive)) == (int(sys.argv[2]), int(sys.argv[3])), (count, len(arrive))
assert count["run"] == count["lane"] > 0, count
assert len(sys.argv) < 5 or count["region"] == int(sys.argv[4]), count
print(f"{len(trace.packet)} packets, {len(tracks)} tracks, {count['job']} jobs, {len(arrive)} arrows")
