-- Every applied migration of the inbox, in order.
-- Locks nothing. Index: primary key of app_inbox_migration (a handful of rows).
select
    m.version,
    m.name,
    m.checksum,
    m.applied_at,
    m.applied_by,
    m.tool_version
from :"schema".app_inbox_migration as m
order by m.version;
